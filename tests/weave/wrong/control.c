// A race that decides which locks are taken, and for how long threads run.
// variants: pie
// flags: -pthread
#include <pthread.h>
#include <stdio.h>

static volatile int counter;
static pthread_mutex_t mutexes[4] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                     PTHREAD_MUTEX_INITIALIZER};
static long sums[4];

static void *work(void *argument) {
    for (int i = 0; i < 30000; i++) {
        int which = counter & 3;
        counter++;
        pthread_mutex_lock(&mutexes[which]);
        sums[which]++;
        pthread_mutex_unlock(&mutexes[which]);
        if (which == 3) pthread_mutex_lock(&mutexes[0]), pthread_mutex_unlock(&mutexes[0]);
    }
    return argument;
}
int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    printf("%ld %ld %ld %ld\n", sums[0], sums[1], sums[2], sums[3]);
    return 0;
}
