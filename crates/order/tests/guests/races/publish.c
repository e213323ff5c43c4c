// A structure is filled behind a flag that isn't one.
// races: ready data
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int data;
volatile int ready;
static void *first(void *_) { data = 42; ready = 1; return NULL; }
static void *second(void *_) { while (!ready) {} return (void *)(long)data; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

