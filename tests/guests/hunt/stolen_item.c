// `if` instead of `while`: between the signal and the waking of a consumer, another consumer comes and takes the item.
#include "bug.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int items, taken, closed;
static void *consumer(void *arg) {
    for (int i = 0; i < 2; i++) {
        work(30);
        pthread_mutex_lock(&lock);
        if (items == 0 && !closed) pthread_cond_wait(&filled, &lock);
        if (items > 0 || !closed) {
            items--;
            taken++;
        }
        assert(items >= 0);
        pthread_mutex_unlock(&lock);
    }
    return arg;
}
static void *producer(void *arg) {
    for (int i = 0; i < 4; i++) {
        work(200);
        pthread_mutex_lock(&lock);
        items++;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    closed = 1;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&lock);
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(consumer, NULL), start(consumer, NULL), start(producer, NULL)};
    for (int i = 0; i < 3; i++) join(threads[i]);
    return 0;
}
