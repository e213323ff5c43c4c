// The main thread leaves by pthread_exit; the process lives until the last thread is done.
// variants: pie static musl
#include "guest.h"
static pthread_t main_thread;
static void *last(void *unused) {
    (void)unused;
    void *r;
    CHECK(!pthread_join(main_thread, &r));
    say("joined main: %ld", (long)r);
    // The process still answers.
    CHECK(kill(getpid(), 0) == 0);
    return NULL;
}
static void bye(void) { say("atexit"); }
int main(void) {
    atexit(bye);
    main_thread = pthread_self();
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, last, NULL));
    pthread_exit((void *)5);
}
