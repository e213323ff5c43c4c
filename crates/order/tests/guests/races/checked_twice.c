// Made once, by a check that isn't atomic.
// races: made
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int *made;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int get(void) {
    if (!made) {
        pthread_mutex_lock(&lock);
        if (!made) { int *new = malloc(sizeof *new); *new = 7; made = new; }
        pthread_mutex_unlock(&lock);
    }
    return *made;
}
static void *first(void *_) { return (void *)(long)get(); }
static void *second(void *_) { return (void *)(long)get(); }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

