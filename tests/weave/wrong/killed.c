// A process that is killed, while its threads run.
// variants: pie
// flags: -pthread
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t ready;
static unsigned hash;

static void *work(void *argument) {
    for (int i = 0;; i++) {
        pthread_mutex_lock(&mutex);
        hash = hash * 31 + (unsigned)(long)argument;
        pthread_mutex_unlock(&mutex);
        if (i == 1000) sem_post(&ready);
    }
}
int main(void) {
    pthread_t threads[2];
    sem_init(&ready, 0, 0);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    sem_wait(&ready);
    sem_wait(&ready);
    pthread_mutex_lock(&mutex);
    printf("%u\n", hash);
    pthread_mutex_unlock(&mutex);
    fflush(stdout);
    kill(getpid(), SIGKILL);
    pause();
    return 0;
}
