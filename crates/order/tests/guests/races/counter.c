// A counter without a lock.
// races: counter
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int counter;
static void *first(void *_) { for (int i = 0; i < 100; i++) counter++; return NULL; }
static void *second(void *_) { for (int i = 0; i < 100; i++) counter++; return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

