// Who is the last? Each worker counts down and then looks, in two steps; if two count first, both think that they are: or nobody.
#include "bug.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static volatile int running = 4, is_finished;
static void *worker(void *arg) {
    work(150);
    int left = running - 1;
    work(2);
    running = left;
    if (left == 0) {
        pthread_mutex_lock(&lock);
        is_finished = 1;
        pthread_cond_signal(&finished);
        pthread_mutex_unlock(&lock);
    }
    return arg;
}
int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(worker, NULL);
    pthread_mutex_lock(&lock);
    while (!is_finished) pthread_cond_wait(&finished, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 4; i++) join(threads[i]);
    return 0;
}
