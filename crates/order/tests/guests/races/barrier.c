// Each writes its part, and reads the other's behind a barrier.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int part[2], sum[2];
pthread_barrier_t barrier;
static void begin(void) __attribute__((constructor));
static void begin(void) { pthread_barrier_init(&barrier, NULL, 2); }
static void work(int me) { for (int i = 0; i < 10; i++) { part[me]++; pthread_barrier_wait(&barrier); sum[me] += part[!me]; pthread_barrier_wait(&barrier); } }
static void *first(void *_) { work(0); return NULL; }
static void *second(void *_) { work(1); return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

