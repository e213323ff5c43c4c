// Three threads that wait for each other, and one that only counts.
#include <pthread.h>
#include <stdio.h>
#include <sched.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int whose;
static volatile long racy, rounds;

static void *worker(void *number) {
    long me = (long)number;
    for (int i = 0; i < 60; i++) {
        pthread_mutex_lock(&lock);
        while (whose != me)
            pthread_cond_wait(&turn, &lock);
        whose = (me + 1) % 3;
        rounds++;
        pthread_cond_broadcast(&turn);
        pthread_mutex_unlock(&lock);
        for (int n = 0; n < 500; n++)
            racy = racy + 1;
        if (i % 10 == 0)
            sched_yield();
    }
    return NULL;
}

int main(void) {
    pthread_t threads[3];
    for (long n = 0; n < 3; n++)
        pthread_create(&threads[n], NULL, worker, (void *)n);
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    printf("%ld rounds, %ld\n", rounds, racy);
    return 0;
}
