// Counted atomically by one and without by the other.
// races: counter
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int counter;
static void *first(void *_) { for (int i = 0; i < 50; i++) __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST); return NULL; }
static void *second(void *_) { counter += 5; return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

