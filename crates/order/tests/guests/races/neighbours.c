// Neighbouring bytes are different memory.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

char bytes[8];
static void *first(void *_) { for (int i = 0; i < 50; i++) bytes[2]++; return NULL; }
static void *second(void *_) { for (int i = 0; i < 50; i++) bytes[3]++; return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

