// One writes to the other's stack, without waiting.
// races: stack
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *first(void *data) { *(int *)data = 1; return NULL; }
int main(void) {
    volatile int local = 0;
    pthread_t one;
    pthread_create(&one, NULL, first, (void *)&local);
    local = 2;
    pthread_join(one, NULL);
    return local == 3;
}
