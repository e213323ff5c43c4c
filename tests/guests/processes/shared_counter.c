// Processes that count in memory they share: under a mutex, with a condition variable, a barrier, semaphores,
// atomically, and racing. What the races came to goes where a replay is compared.
#include "guest.h"
#include <semaphore.h>
#include <stdatomic.h>
#define PROCESSES 3
#define ROUNDS 300
struct counters {
    pthread_mutex_t mutex;
    pthread_cond_t turned;
    pthread_barrier_t barrier;
    sem_t items;
    long locked, turn, taken;
    atomic_long atomic;
    volatile long racing;
    long far[8192];
};
static struct counters *shared;
static long seen[ROUNDS]; // private: part of the checksum at the end
static void work(int me) {
    pthread_barrier_wait(&shared->barrier);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
        shared->locked++;
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
        atomic_fetch_add(&shared->atomic, 1);
        shared->racing = shared->racing + 1;
        seen[i] = shared->racing;
        shared->far[(me * ROUNDS + i) * 9] = i;
    }
    for (int i = 0; i < 20; i++) {
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
        while (shared->turn % PROCESSES != me) pthread_cond_wait(&shared->turned, &shared->mutex);
        shared->turn++;
        pthread_cond_broadcast(&shared->turned);
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    }
    if (me) {
        for (int i = 0; i < 10; i++) sem_post(&shared->items);
    } else {
        for (int i = 0; i < 10 * (PROCESSES - 1); i++) {
            while (sem_wait(&shared->items) != 0) CHECK(errno == EINTR);
            shared->taken++;
        }
    }
}
int main(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    pthread_barrierattr_t barrier;
    pthread_mutexattr_init(&mutex);
    pthread_condattr_init(&cond);
    pthread_barrierattr_init(&barrier);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_mutex_init(&shared->mutex, &mutex) == 0);
    CHECK(pthread_cond_init(&shared->turned, &cond) == 0);
    CHECK(pthread_barrier_init(&shared->barrier, &barrier, PROCESSES) == 0);
    CHECK(sem_init(&shared->items, 1, 0) == 0);
    for (int i = 1; i < PROCESSES; i++) {
        if (fork() == 0) {
            work(i);
            _exit(0);
        }
    }
    work(0);
    int status;
    for (int i = 1; i < PROCESSES; i++) CHECK(wait(&status) > 0 && status == 0);
    long far = 0;
    for (int i = 0; i < 8192; i++) far += shared->far[i];
    CHECK(shared->racing >= 1 && shared->racing <= PROCESSES * ROUNDS);
    say("locked %ld atomic %ld turns %ld taken %ld far %ld", shared->locked, (long)shared->atomic,
        shared->turn, shared->taken, far);
}
