// The example of the paper on replay by Lamport clocks: a semaphore decides between (1 + n) * n and 1 * n + n.
// variants: pie
// flags: -pthread
// stdin: 5\n
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t sem;
static int shared = 1;

static void *thread2(void *argument) {
    sem_wait(&sem);
    shared = shared + *(int *)argument;
    sem_post(&sem);
    return NULL;
}
static void *thread3(void *argument) {
    sem_wait(&sem);
    shared = shared * *(int *)argument;
    sem_post(&sem);
    return NULL;
}
int main(void) {
    pthread_t t2, t3;
    char buffer[10] = "";
    sem_init(&sem, 0, 0);
    if (read(0, buffer, 9) < 0) return 1;
    int number = atoi(buffer);
    pthread_create(&t2, NULL, thread2, &number);
    pthread_create(&t3, NULL, thread3, &number);
    sem_post(&sem);
    pthread_join(t2, NULL);
    pthread_join(t3, NULL);
    printf("%d\n", shared);
    return 0;
}
