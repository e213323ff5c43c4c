// The paper's figure 2.
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

sem_t sem;
int shared = 1;

void *thread2(void *data) {
    int *arg = data;
    sem_wait(&sem);
    shared = shared + (*arg);
    sem_post(&sem);
    return NULL;
}

void *thread3(void *data) {
    int *arg = data;
    sem_wait(&sem);
    shared = shared * (*arg);
    sem_post(&sem);
    return NULL;
}

int main(void) {
    pthread_t t2, t3;
    char buf[10] = {0};
    int arg;

    sem_init(&sem, 0, 0);
    if (read(0, buf, 9) < 0)
        return 1;
    arg = atoi(buf);

    pthread_create(&t2, NULL, thread2, &arg);
    pthread_create(&t3, NULL, thread3, &arg);
    sem_post(&sem);

    pthread_join(t2, NULL);
    pthread_join(t3, NULL);
    return 0;
}
