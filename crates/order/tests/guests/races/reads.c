// Only read.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int table[16] = {1, 2, 3};
static void *first(void *_) { long sum = 0; for (int i = 0; i < 16; i++) sum += table[i]; return (void *)sum; }
static void *second(void *_) { long sum = 0; for (int i = 0; i < 16; i++) sum += table[i]; return (void *)sum; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

