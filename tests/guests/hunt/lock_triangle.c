// Three locks taken in a circle: each two of the three threads get along.
#include "bug.h"
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER, c = PTHREAD_MUTEX_INITIALIZER;
static volatile int moved;
static void both(pthread_mutex_t *one, pthread_mutex_t *two) {
    for (int i = 0; i < 3; i++) {
        work(100);
        pthread_mutex_lock(one);
        work(2);
        pthread_mutex_lock(two);
        moved++;
        pthread_mutex_unlock(two);
        pthread_mutex_unlock(one);
    }
}
static void *first(void *arg) { both(&a, &b); return arg; }
static void *second(void *arg) { both(&b, &c); return arg; }
static void *third(void *arg) { both(&c, &a); return arg; }
int main(void) {
    pthread_t threads[] = {start(first, NULL), start(second, NULL), start(third, NULL)};
    for (int i = 0; i < 3; i++) join(threads[i]);
    return 0;
}
