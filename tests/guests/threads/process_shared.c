// Mutex, condition, barrier and semaphore in shared memory, used by several processes;
// also through a file mapping.
// variants: pie static musl
#include "guest.h"
#include <semaphore.h>
struct shared {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    pthread_barrier_t barrier;
    sem_t sem;
    long counter;
    int arrived;
};
int main(void) {
    int fd = open("shared", O_RDWR | O_CREAT, 0600);
    CHECK(ftruncate(fd, 4096) == 0);
    struct shared *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_mutexattr_t ma;
    pthread_mutexattr_init(&ma);
    pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&s->lock, &ma);
    pthread_condattr_t ca;
    pthread_condattr_init(&ca);
    pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&s->cond, &ca);
    pthread_barrierattr_t ba;
    pthread_barrierattr_init(&ba);
    pthread_barrierattr_setpshared(&ba, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&s->barrier, &ba, 4);
    sem_init(&s->sem, 1, 0);
    for (int i = 0; i < 4; i++)
        if (!fork()) {
            pthread_barrier_wait(&s->barrier);
            for (int k = 0; k < 5000; k++) {
                pthread_mutex_lock(&s->lock);
                s->counter++;
                pthread_mutex_unlock(&s->lock);
            }
            pthread_mutex_lock(&s->lock);
            if (++s->arrived == 4) pthread_cond_broadcast(&s->cond);
            while (s->arrived < 4) pthread_cond_wait(&s->cond, &s->lock);
            pthread_mutex_unlock(&s->lock);
            sem_post(&s->sem);
            _exit(0);
        }
    for (int i = 0; i < 4; i++) while (sem_wait(&s->sem)) {}
    while (wait(NULL) > 0) {}
    say("counter %ld", s->counter);
    munmap(s, 4096);
    unlink("shared");
}
