// Readers and writers, as it should be.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

long value, seen;
pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static void *first(void *_) { for (int i = 0; i < 20; i++) { pthread_rwlock_wrlock(&lock); value++; pthread_rwlock_unlock(&lock); } return NULL; }
static void *second(void *_) { long sum = 0; for (int i = 0; i < 20; i++) { pthread_rwlock_rdlock(&lock); sum += value; pthread_rwlock_unlock(&lock); } seen = sum; return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

