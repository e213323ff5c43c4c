// A long write over a byte of another's.
// races: bytes
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>
char bytes[16] __attribute__((aligned(16)));
static void *first(void *_) { memset(bytes + 4, 1, 4); return NULL; }
static void *second(void *_) { bytes[7] = 2; return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

