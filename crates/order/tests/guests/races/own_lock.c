// A lock of the program's own: taken by an exchange, given by a store.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <stdatomic.h>
#include <sched.h>
int counter;
atomic_int held;
static void add(void) {
    while (atomic_exchange_explicit(&held, 1, memory_order_acquire)) sched_yield();
    counter++;
    atomic_store_explicit(&held, 0, memory_order_release);
}
static void *first(void *_) { for (int i = 0; i < 50; i++) add(); return NULL; }
static void *second(void *_) { for (int i = 0; i < 50; i++) add(); return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

