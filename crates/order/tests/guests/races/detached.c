// Threads nobody waits for have each other's stacks, one after the other.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <semaphore.h>
sem_t done;
static void *body(void *_) { volatile char local[512]; for (int i = 0; i < 512; i++) local[i] = i; sem_post(&done); return NULL; }
int main(void) {
    sem_init(&done, 0, 0);
    for (int i = 0; i < 20; i++) {
        pthread_t one;
        pthread_create(&one, NULL, body, NULL);
        pthread_detach(one);
        if (i % 2) { sem_wait(&done); sem_wait(&done); }
    }
    return 0;
}
