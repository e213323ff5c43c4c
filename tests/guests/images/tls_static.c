// Local-exec TLS in static images, with alignment.
// variants: static static-pie musl-static nopie
#include "guest.h"
static __thread char c = 'a';
static __thread struct { char bytes[64]; } __attribute__((aligned(64))) aligned = {"aligned"};
static void *work(void *arg) {
    c += (char)(long)arg;
    CHECK(((uintptr_t)&aligned & 63) == 0);
    aligned.bytes[0] = c;
    say("%c %s", c, aligned.bytes);
    return NULL;
}
int main(void) {
    for (long i = 0; i < 3; i++) {
        pthread_t t;
        CHECK(!pthread_create(&t, NULL, work, (void *)i));
        pthread_join(t, NULL);
    }
    work((void *)25);
}
