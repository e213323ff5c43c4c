// The library's own locks count.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *first(void *_) { for (int i = 0; i < 20; i++) printf("first %d\n", i); return NULL; }
static void *second(void *_) { for (int i = 0; i < 20; i++) printf("second %d\n", i); return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

