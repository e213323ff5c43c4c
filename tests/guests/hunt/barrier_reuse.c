// A barrier that is used again: the last to come sets the count back, and is in the next round before who is slow has seen it.
#include "bug.h"
enum { THREADS = 3, ROUNDS = 4 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all = PTHREAD_COND_INITIALIZER;
static int arrived;
static void meet(void) {
    pthread_mutex_lock(&lock);
    if (++arrived == THREADS) {
        arrived = 0;
        pthread_cond_broadcast(&all);
    } else {
        while (arrived != 0) pthread_cond_wait(&all, &lock);
    }
    pthread_mutex_unlock(&lock);
}
static void *party(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        work(200);
        meet();
        usleep(20000);
    }
    return arg;
}
int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) threads[i] = start(party, NULL);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    return 0;
}
