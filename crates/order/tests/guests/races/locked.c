// The same with a lock.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int counter;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void add(void) { pthread_mutex_lock(&lock); counter++; pthread_mutex_unlock(&lock); }
static void *first(void *_) { for (int i = 0; i < 100; i++) add(); return NULL; }
static void *second(void *_) { for (int i = 0; i < 100; i++) add(); return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

