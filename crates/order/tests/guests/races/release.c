// A flag that is stored with release: an ordinary store to the machine.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <stdatomic.h>
int data;
atomic_int ready;
static void *first(void *_) { data = 42; atomic_store_explicit(&ready, 1, memory_order_release); return NULL; }
static void *second(void *_) { while (!atomic_load_explicit(&ready, memory_order_acquire)) {} return (void *)(long)data; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

