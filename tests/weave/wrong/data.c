// A race that changes data only, which is printed.
// variants: pie
// flags: -pthread
#include <pthread.h>
#include <stdio.h>

static volatile int counter;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *argument) {
    for (int i = 0; i < 200000; i++) {
        int value = counter;
        counter = value + 1;
        if (i % 1000 == 0) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
        }
    }
    return argument;
}
int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    printf("%d\n", counter);
    return 0;
}
