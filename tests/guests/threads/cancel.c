// Cancellation: at a blocking call, asynchronously in a tight loop, disabled for a while;
// cleanup handlers run in order.
// variants: pie static
#include "guest.h"
#include <sched.h>
static int pipe_fds[2];
static volatile int running;
static void clean(void *what) { say("cleanup %s", (char *)what); }
static void *blocked(void *unused) {
    (void)unused;
    char c;
    pthread_cleanup_push(clean, "outer");
    pthread_cleanup_push(clean, "inner");
    running = 1;
    read(pipe_fds[0], &c, 1);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}
static void *spinning(void *unused) {
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    running = 1;
    for (;;) __asm__ volatile("");
}
static void *disabled(void *unused) {
    (void)unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    running = 1;
    char c;
    CHECK(read(pipe_fds[0], &c, 1) == 1);
    say("read while disabled");
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_testcancel();
    say("not reached");
    return NULL;
}
static void *waiting(void *unused) {
    (void)unused;
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&m);
    pthread_cleanup_push((void (*)(void *))pthread_mutex_unlock, &m);
    running = 1;
    for (;;) pthread_cond_wait(&c, &m);
    pthread_cleanup_pop(1);
    return NULL;
}
static void try(const char *name, void *(*f)(void *)) {
    pthread_t t;
    void *result;
    running = 0;
    CHECK(!pthread_create(&t, NULL, f, NULL));
    while (!running) sched_yield();
    pthread_cancel(t);
    if (f == disabled) CHECK(write(pipe_fds[1], "x", 1) == 1);
    pthread_join(t, &result);
    say("%s %s", name, result == PTHREAD_CANCELED ? "cancelled" : "returned");
}
int main(void) {
    CHECK(pipe(pipe_fds) == 0);
    try("blocked", blocked);
    try("spinning", spinning);
    try("disabled", disabled);
    try("waiting", waiting);
}
