// A program that dies by its own hand, in a thread.
// variants: pie
// flags: -pthread
// status: signal ABRT
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned hash;

static void *work(void *argument) {
    for (int i = 0; i < 3000; i++) {
        pthread_mutex_lock(&mutex);
        hash = hash * 31 + (unsigned)(long)argument;
        if (hash % 1009 == 5 && i > 100) {
            printf("%u\n", hash);
            fflush(stdout);
            abort();
        }
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}
int main(void) {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    printf("none\n");
    fflush(stdout);
    abort();
}
