// A thread clears what another one has just looked at.
// kind: null-pointer
// record: --sched random --seed 3
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static volatile long *volatile shared;
static volatile int done;
static void *clearer(void *arg) {
    for (int round = 0; round < 3000 && !done; round++) {
        volatile long *old = shared;
        shared = NULL; // CAUSE
        shared = old;
    }
    return arg;
}
int main(void) {
    pthread_t thread;
    shared = calloc(1, sizeof *shared);
    pthread_create(&thread, NULL, clearer, NULL);
    for (int round = 0; round < 3000; round++)
        if (shared != NULL) *shared += round;
    done = 1;
    pthread_join(thread, NULL);
    printf("%ld\n", *shared);
    return 0;
}
