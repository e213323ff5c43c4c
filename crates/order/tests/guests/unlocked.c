// Figure 2's computation without its semaphore: the result depends on who comes first.
#include <pthread.h>
#include <stdio.h>

int shared = 1;

void *adds(void *_) {
    shared = shared + 5;
    return NULL;
}

void *multiplies(void *_) {
    shared = shared * 7;
    return NULL;
}

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, adds, NULL);
    pthread_create(&two, NULL, multiplies, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    printf("%d\n", shared);
    return 0;
}
