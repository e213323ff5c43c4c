// Threads that wait for each other by spinning: with pause, without, with sched_yield, and
// on a value that a thread blocked in a read will set.
// variants: pie static
#include "guest.h"
#include <sched.h>
static volatile int turn, flag;
static int fds[2];
static void *plain(void *arg) {
    for (int i = 0; i < 300; i++) {
        while (turn != (int)(long)arg) {}
        turn = !turn;
    }
    return NULL;
}
static void *paused(void *arg) {
    for (int i = 0; i < 300; i++) {
        while (turn != (int)(long)arg) __builtin_ia32_pause();
        turn = !turn;
    }
    return NULL;
}
static void *yielding(void *arg) {
    for (int i = 0; i < 1000; i++) {
        while (turn != (int)(long)arg) sched_yield();
        turn = !turn;
    }
    return NULL;
}
static void *reader(void *u) {
    char c;
    CHECK(read(fds[0], &c, 1) == 1);
    flag = c;
    return u;
}
static void *writer(void *u) { CHECK(write(fds[1], "k", 1) == 1); return u; }
static void *atomically(void *u) {
    (void)u;
    static int lock;
    static int count;
    for (int i = 0; i < 20000; i++) {
        while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
        count++;
        __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    }
    return (void *)&count;
}
static void pair(const char *name, void *(*f)(void *)) {
    pthread_t t[2];
    for (long i = 0; i < 2; i++) CHECK(!pthread_create(&t[i], NULL, f, (void *)i));
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    say("%s", name);
}
int main(void) {
    pair("plain", plain);
    pair("pause", paused);
    pair("yield", yielding);
    CHECK(pipe(fds) == 0);
    pthread_t a, b;
    CHECK(!pthread_create(&a, NULL, reader, NULL));
    CHECK(!pthread_create(&b, NULL, writer, NULL));
    while (!flag) {}
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    say("read %c", flag);
    pthread_t t[3];
    void *r = NULL;
    for (int i = 0; i < 3; i++) CHECK(!pthread_create(&t[i], NULL, atomically, NULL));
    for (int i = 0; i < 3; i++) pthread_join(t[i], &r);
    say("lock %d", *(int *)r);
}
