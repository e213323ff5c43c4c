// Five philosophers: all of them must have taken their left fork.
#include "bug.h"
static pthread_mutex_t forks[5] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                   PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static int meals[5];
static void *philosopher(void *arg) {
    long n = (long)arg;
    for (int i = 0; i < 3; i++) {
        work(60);
        pthread_mutex_lock(&forks[n]);
        pthread_mutex_lock(&forks[(n + 1) % 5]);
        meals[n]++;
        pthread_mutex_unlock(&forks[(n + 1) % 5]);
        pthread_mutex_unlock(&forks[n]);
    }
    return arg;
}
int main(void) {
    pthread_t threads[5];
    for (long i = 0; i < 5; i++) threads[i] = start(philosopher, (void *)i);
    for (int i = 0; i < 5; i++) join(threads[i]);
    return 0;
}
