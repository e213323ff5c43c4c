// Every kind of lock, contended: the order in which threads have them shows in what is printed.
// variants: pie debug
// flags: -pthread
// status: exit 3
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <errno.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive, checking, robust;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t sem;
static unsigned hash;
static int spins, items, timeouts;

static void mix(unsigned x) { hash = hash * 31 + x; }

static void locked_mix(unsigned x) {
    pthread_mutex_lock(&mutex);
    mix(x);
    pthread_mutex_unlock(&mutex);
}

static void begin(void) { mix(77); }

static void *work(void *argument) {
    int id = (int)(long)argument;
    pthread_once(&once, begin);
    for (int i = 0; i < 600; i++) {
        if (pthread_mutex_trylock(&mutex) == 0) {
            mix(id);
            pthread_mutex_unlock(&mutex);
        } else {
            locked_mix(id * 7 + 1);
        }
        pthread_rwlock_rdlock(&rwlock);
        unsigned seen = spins;
        pthread_rwlock_unlock(&rwlock);
        if (i % 7 == 0) {
            pthread_rwlock_wrlock(&rwlock);
            spins += seen & 1;
            pthread_rwlock_unlock(&rwlock);
        }
        pthread_spin_lock(&spin);
        int turn = items++;
        pthread_spin_unlock(&spin);
        sem_wait(&sem);
        locked_mix(turn);
        sem_post(&sem);
        pthread_mutex_lock(&recursive);
        pthread_mutex_lock(&recursive);
        pthread_mutex_unlock(&recursive);
        pthread_mutex_unlock(&recursive);
        pthread_mutex_lock(&checking);
        if (pthread_mutex_lock(&checking) != EDEADLK) abort();
        pthread_mutex_unlock(&checking);
        if (pthread_mutex_unlock(&checking) != EPERM) abort();
        pthread_mutex_lock(&robust);
        pthread_mutex_unlock(&robust);
        if (i % 50 == 0) locked_mix(pthread_barrier_wait(&barrier));
        if (i % 100 == 0) {
            struct timespec soon;
            clock_gettime(CLOCK_REALTIME, &soon);
            soon.tv_nsec += 1000;
            if (soon.tv_nsec >= 1000000000) soon.tv_sec++, soon.tv_nsec -= 1000000000;
            pthread_mutex_lock(&mutex);
            while (pthread_cond_timedwait(&filled, &mutex, &soon) == 0) {}
            mix(++timeouts);
            pthread_mutex_unlock(&mutex);
        }
    }
    return NULL;
}

int main(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checking, &kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_NORMAL);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kind);
    pthread_barrier_init(&barrier, NULL, 4);
    pthread_spin_init(&spin, 0);
    sem_init(&sem, 0, 2);
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%u %d\n", hash, timeouts);
    return 3;
}
