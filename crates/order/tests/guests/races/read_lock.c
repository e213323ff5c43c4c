// Written while it is locked for reading.
// races: table.used
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct { long size; long used; } table;
pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static void *first(void *_) { pthread_rwlock_rdlock(&lock); table.used = 1; pthread_rwlock_unlock(&lock); return NULL; }
static void *second(void *_) { pthread_rwlock_rdlock(&lock); table.used = 2; pthread_rwlock_unlock(&lock); return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

