// A thread calls exit while others spin, block in read, in a futex and in a long sleep.
// variants: pie static musl
// status: exit 9
#include "guest.h"
static volatile long spins;
static pthread_barrier_t barrier;
static int fds[2];
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static void *spin(void *u) { (void)u; pthread_barrier_wait(&barrier); for (;;) spins++; }
static void *reader(void *u) { char c; pthread_barrier_wait(&barrier); read(fds[0], &c, 1); return u; }
static void *locker(void *u) { pthread_barrier_wait(&barrier); pthread_mutex_lock(&held); return u; }
static void *sleeper(void *u) { pthread_barrier_wait(&barrier); struct timespec t = {1000, 0}; nanosleep(&t, NULL); return u; }
static void *exiter(void *u) { (void)u; pthread_barrier_wait(&barrier); while (spins < 1000) {} say("exiting"); exit(9); }
int main(void) {
    CHECK(pipe(fds) == 0);
    pthread_mutex_lock(&held);
    pthread_barrier_init(&barrier, NULL, 6);
    void *(*all[])(void *) = {spin, reader, locker, sleeper, exiter};
    pthread_t t;
    for (int i = 0; i < 5; i++) CHECK(!pthread_create(&t, NULL, all[i], NULL));
    pthread_barrier_wait(&barrier);
    for (;;) pause();
}
