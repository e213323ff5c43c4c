// Two threads, a lock, a block that is freed: for watch, heap and order.
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int level;
char *block;

static void *worker(void *unused) {
    pthread_mutex_lock(&lock);
    level = 2; // breaks level < 2
    pthread_mutex_unlock(&lock);
    free(block); // frees
    return unused;
}

int main(void) {
    pthread_t thread;
    block = malloc(100); // allocates
    level = 1;
    pthread_create(&thread, NULL, worker, NULL);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    return level - 2;
}
