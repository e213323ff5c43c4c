// Two locks in two orders.
// kind: deadlock
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER, right = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static int sum;
static void *worker(void *arg) {
    pthread_mutex_lock(&right);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&left); // CAUSE
    sum++;
    pthread_mutex_unlock(&left);
    pthread_mutex_unlock(&right);
    return arg;
}
int main(void) {
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, worker, NULL);
    pthread_mutex_lock(&left);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&right); // CAUSE
    sum++;
    pthread_mutex_unlock(&right);
    pthread_mutex_unlock(&left);
    pthread_join(thread, NULL);
    printf("%d\n", sum);
    return 0;
}
