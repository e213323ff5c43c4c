// The process ends while threads wait: for a condition, a semaphore, a lock, input.
// variants: pie
// flags: -pthread
// status: exit 7
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t sem, ready;
static int pipes[2];
static unsigned count;

static void *wait_condition(void *argument) {
    (void)argument;
    pthread_mutex_lock(&mutex);
    sem_post(&ready);
    for (;;) pthread_cond_wait(&never, &mutex);
}
static void *wait_semaphore(void *argument) {
    (void)argument;
    sem_post(&ready);
    sem_wait(&sem);
    return NULL;
}
static void *wait_lock(void *argument) {
    (void)argument;
    sem_post(&ready);
    pthread_mutex_lock(&held);
    return NULL;
}
static void *wait_input(void *argument) {
    (void)argument;
    char byte;
    sem_post(&ready);
    return (void *)(long)read(pipes[0], &byte, 1);
}
static void *run_on(void *argument) {
    (void)argument;
    for (;;) {
        pthread_mutex_lock(&mutex);
        count++;
        pthread_mutex_unlock(&mutex);
        sem_post(&ready);
    }
}

int main(void) {
    void *(*all[])(void *) = {wait_condition, wait_semaphore, wait_lock, wait_input, run_on, run_on};
    sem_init(&sem, 0, 0);
    sem_init(&ready, 0, 0);
    if (pipe(pipes)) return 1;
    pthread_mutex_lock(&held);
    pthread_t thread;
    for (int i = 0; i < 6; i++) pthread_create(&thread, NULL, all[i], NULL);
    for (int i = 0; i < 2000; i++) sem_wait(&ready);
    pthread_mutex_lock(&mutex);
    printf("%u\n", count);
    pthread_mutex_unlock(&mutex);
    return 7;
}
