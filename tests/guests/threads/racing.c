// Four threads count in one variable without a lock, and a handler counts beside the program it
// interrupts. Updates may be lost, never gained. With an argument: says how many were
// (of how many, in each thread, the next one says).
// variants: static pie
// flags: -O1
#include "guest.h"
#include <sys/time.h>
static long rounds = 100000;
static volatile long shared, beside;
static void *count(void *u) {
    (void)u;
    for (long i = 0; i < rounds; i++) {
        long value = shared;
        shared = value + 1;
    }
    return NULL;
}
static volatile long handled;
static void handler(int sig) {
    (void)sig;
    beside += 1000;
    handled += 1000;
}
int main(int argc, char **argv) {
    pthread_t threads[4];
    if (argc > 2) rounds = atol(argv[2]);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, count, NULL) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(shared > 0 && shared <= 4 * rounds);
    if (argc > 1 && !strcmp(argv[1], "handler")) {
        // Until one interrupts the addition itself.
        signal(SIGALRM, handler);
        struct itimerval often = {{0, 200}, {0, 200}};
        setitimer(ITIMER_REAL, &often, NULL);
        long own = 0;
        for (; beside == own + handled && handled < 4000000; own++) {
            long value = beside;
            beside = value + 1;
        }
        struct itimerval never = {0};
        setitimer(ITIMER_REAL, &never, NULL);
        say(beside == own + handled ? "nothing was lost" : "a handler's work was lost");
    } else if (argc > 1) {
        say("%ld", 4 * rounds - shared);
    } else {
        say("counted");
    }
}
