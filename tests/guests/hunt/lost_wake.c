// A lost wake-up: the flag is looked at before the lock is taken, and set without it.
#include "bug.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static volatile int flag;
static void *waiter(void *arg) {
    work(30);
    if (!flag) {
        pthread_mutex_lock(&lock);
        pthread_cond_wait(&ready, &lock);
        pthread_mutex_unlock(&lock);
    }
    return arg;
}
static void *maker(void *arg) {
    work(400);
    flag = 1;
    pthread_cond_signal(&ready);
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(waiter, NULL), start(maker, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
