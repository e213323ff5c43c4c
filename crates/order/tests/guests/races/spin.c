// A spin lock.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int counter;
pthread_spinlock_t lock;
static void begin(void) __attribute__((constructor));
static void begin(void) { pthread_spin_init(&lock, 0); }
static void *first(void *_) { for (int i = 0; i < 30; i++) { pthread_spin_lock(&lock); counter++; pthread_spin_unlock(&lock); } return NULL; }
static void *second(void *_) { for (int i = 0; i < 30; i++) { pthread_spin_lock(&lock); counter++; pthread_spin_unlock(&lock); } return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

