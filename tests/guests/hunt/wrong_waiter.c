// One condition for two kinds of waiters, and one is woken: the wrong one goes to sleep again, and the right one is never woken.
#include "bug.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int full;
static void *producer(void *arg) {
    for (int i = 0; i < 3; i++) {
        work(100);
        pthread_mutex_lock(&lock);
        while (full) pthread_cond_wait(&changed, &lock);
        full = 1;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
    }
    return arg;
}
static void *consumer(void *arg) {
    for (int i = 0; i < 3; i++) {
        work(100);
        pthread_mutex_lock(&lock);
        while (!full) pthread_cond_wait(&changed, &lock);
        full = 0;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(producer, NULL), start(consumer, NULL), start(producer, NULL), start(consumer, NULL)};
    for (int i = 0; i < 4; i++) join(threads[i]);
    return 0;
}
