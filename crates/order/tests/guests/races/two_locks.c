// Each takes a lock, but not the same.
// races: total
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

long total;
pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static void *first(void *_) { pthread_mutex_lock(&a); total += 1; pthread_mutex_unlock(&a); return NULL; }
static void *second(void *_) { pthread_mutex_lock(&b); total += 2; pthread_mutex_unlock(&b); return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

