// A condition that is signalled before anybody waits, and never again.
// kind: hang
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static void *producer(void *arg) {
    pthread_mutex_lock(&lock);
    pthread_cond_signal(&ready);
    pthread_mutex_unlock(&lock);
    return arg;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, producer, NULL);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&lock);
    pthread_cond_wait(&ready, &lock); // CAUSE
    pthread_mutex_unlock(&lock);
    puts("ready");
    return 0;
}
