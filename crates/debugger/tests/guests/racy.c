// Two threads write one variable without a lock, and another with one.
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int shared, guarded;

static void *worker(void *unused) {
    shared++; // one side
    pthread_mutex_lock(&lock);
    guarded++;
    pthread_mutex_unlock(&lock);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, worker, NULL);
    shared += 2; // other side
    pthread_mutex_lock(&lock);
    guarded += 2;
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    printf("%d %d\n", shared, guarded);
    return 0;
}
