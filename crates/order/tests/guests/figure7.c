// The paper's figure 7: thread 1's E4 needs thread 2's E3, whose E2 needs thread 3's E1.
#include <pthread.h>
#include <semaphore.h>

sem_t one, two;

void *thread3(void *_) {
    sem_post(&one); // E1
    return NULL;
}

void *thread2(void *_) {
    sem_wait(&one); // E2
    sem_post(&two); // E3
    return NULL;
}

void *thread1(void *_) {
    sem_wait(&two); // E4
    return NULL;
}

int main(void) {
    pthread_t threads[3];
    sem_init(&one, 0, 0);
    sem_init(&two, 0, 0);
    pthread_create(&threads[0], NULL, thread3, NULL);
    pthread_create(&threads[1], NULL, thread2, NULL);
    pthread_create(&threads[2], NULL, thread1, NULL);
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    return 0;
}
