// A queue with a lock and a condition.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int items[8], head, tail, count;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
long sum;
static void *first(void *_) {
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&lock);
        while (count == 8) pthread_cond_wait(&emptied, &lock);
        items[tail++ % 8] = i; count++;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}
static void *second(void *_) {
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&lock);
        while (count == 0) pthread_cond_wait(&filled, &lock);
        sum += items[head++ % 8]; count--;
        pthread_cond_signal(&emptied);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

