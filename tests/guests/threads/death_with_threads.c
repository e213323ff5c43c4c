// A fatal signal ends all threads at once.
// variants: pie static
// status: signal SEGV
#include "guest.h"
static volatile int ready;
static void *spin(void *u) { (void)u; __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST); for (;;) __asm__ volatile("pause"); }
static void *crash(void *u) { while (ready < 2) {} say("crashing"); *(volatile int *)16 = 1; return u; }
int main(void) {
    pthread_t t;
    for (int i = 0; i < 2; i++) CHECK(!pthread_create(&t, NULL, spin, NULL));
    CHECK(!pthread_create(&t, NULL, crash, NULL));
    pthread_join(t, NULL);
}
