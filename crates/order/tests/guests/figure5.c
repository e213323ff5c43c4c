// The events of the paper's figure 5: E4, E3 and E2 are of one object and three threads, E6 and E5 of thread 3 alone, E1 of
// thread 1 alone, E8 needs E7.
#include <pthread.h>
#include <semaphore.h>

sem_t chain, third, first, last;

void *thread3(void *_) {
    sem_post(&chain); // E4
    sem_post(&third); // E6
    sem_post(&third); // E5
    return NULL;
}

void *thread2(void *_) {
    sem_post(&chain); // E3
    sem_wait(&last);  // E8
    return NULL;
}

void *thread1(void *_) {
    sem_post(&chain); // E2
    sem_post(&first); // E1
    sem_post(&last);  // E7
    return NULL;
}

int main(void) {
    pthread_t threads[3];
    sem_init(&chain, 0, 0);
    sem_init(&third, 0, 0);
    sem_init(&first, 0, 0);
    sem_init(&last, 0, 0);
    pthread_create(&threads[0], NULL, thread3, NULL);
    pthread_create(&threads[1], NULL, thread2, NULL);
    pthread_create(&threads[2], NULL, thread1, NULL);
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    return 0;
}
