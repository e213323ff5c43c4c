// Handed over by a semaphore.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <semaphore.h>
int data;
sem_t full;
static void begin(void) __attribute__((constructor));
static void begin(void) { sem_init(&full, 0, 0); }
static void *first(void *_) { data = 1; sem_post(&full); return NULL; }
static void *second(void *_) { sem_wait(&full); return (void *)(long)data; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

