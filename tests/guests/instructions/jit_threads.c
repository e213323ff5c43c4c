// One thread rewrites code that others keep calling; each call sees the old or the new, and
// all see the new once they synchronised.
#include "guest.h"
static unsigned char *page;
static volatile int version, stop;
static pthread_barrier_t barrier;
static void *caller(void *unused) {
    (void)unused;
    int (*f)(void) = (int (*)(void))page;
    for (int round = 1; round <= 200; round++) {
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < 100; i++) CHECK(f() == round);
        pthread_barrier_wait(&barrier);
    }
    int last = 0;
    while (!stop) {
        int now = f();
        CHECK(now >= last);
        last = now;
    }
    return NULL;
}
static void patch(int value) { // aligned so that it is one store
    uint64_t code = 0xc3000000b8 | 0;
    code = 0xb8ul | (uint64_t)(uint32_t)value << 8 | 0xc3ul << 40;
    __atomic_store_n((uint64_t *)page, code, __ATOMIC_SEQ_CST);
}
int main(void) {
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    patch(0);
    pthread_barrier_init(&barrier, NULL, 4);
    pthread_t t[3];
    for (int i = 0; i < 3; i++) CHECK(!pthread_create(&t[i], NULL, caller, NULL));
    for (int round = 1; round <= 200; round++) {
        patch(round);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    for (int i = 201; i < 1000; i++) patch(i);
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    say("ok");
}
