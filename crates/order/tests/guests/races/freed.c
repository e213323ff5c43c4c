// Given back while another uses it.
// races: heap
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <unistd.h>
int *shared;
static void *first(void *_) { return (void *)(long)shared[3]; }
static void *second(void *_) { free(shared); return NULL; }
static void begin(void) __attribute__((constructor));
static void begin(void) { shared = malloc(64); shared[3] = 1; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

