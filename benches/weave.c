// What each kind of thread interaction costs: a line for each with nanoseconds of CPU time per round. Loops that do
// nothing else; at the end some with work between.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;
static long counter;
static int turn;

// Through the kernel: a woven program's clock calls are events too.
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *nothing(void *p) { return p; }

static void *contend(void *p) {
    for (int i = 0; i < 500000; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
    return p;
}

static void *answer(void *p) {
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&mutex);
        while (turn != 1) pthread_cond_wait(&changed, &mutex);
        turn = 0;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return p;
}

// About two microseconds of work around each lock.
static void *work(void *p) {
    volatile unsigned x = 1;
    for (int i = 0; i < 60000; i++) {
        for (int k = 0; k < 2000; k++) x = x * 31 + 1;
        pthread_mutex_lock(&mutex);
        counter += x;
        pthread_mutex_unlock(&mutex);
    }
    return p;
}

static void two(const char *name, void *(*routine)(void *), double rounds) {
    pthread_t threads[2];
    double begin = now();
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, routine, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%s: %.1f\n", name, (now() - begin) / rounds);
}

#define LOOP(name, rounds, body) \
    do { \
        double begin = now(); \
        for (int i = 0; i < (rounds); i++) { \
            body; \
        } \
        printf("%s: %.1f\n", name, (now() - begin) / (rounds)); \
    } while (0)

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    sem_init(&sem, 0, 1);
    LOOP("lock and unlock", 2000000, pthread_mutex_lock(&mutex); counter++; pthread_mutex_unlock(&mutex));
    two("the same, two threads", contend, 1000000);
    LOOP("sem_post and sem_wait", 2000000, sem_post(&sem); sem_wait(&sem));
    LOOP("read lock and unlock", 2000000, pthread_rwlock_rdlock(&rwlock); pthread_rwlock_unlock(&rwlock));
    LOOP("malloc and free", 2000000, void *p = malloc(64 + (i & 255)); __asm__ volatile("" ::"r"(p) : "memory"); free(p));
    struct timespec t;
    LOOP("clock_gettime", 500000, clock_gettime(CLOCK_MONOTONIC, &t));
    LOOP("create and join", 3000, pthread_create(&thread, NULL, nothing, NULL); pthread_join(thread, NULL));
    double begin = now();
    pthread_create(&thread, NULL, answer, NULL);
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&mutex);
        turn = 1;
        pthread_cond_signal(&changed);
        while (turn != 0) pthread_cond_wait(&changed, &mutex);
        pthread_mutex_unlock(&mutex);
    }
    pthread_join(thread, NULL);
    printf("condition, there and back: %.1f\n", (now() - begin) / 10000);
    two("2 us of work, then a lock, two threads", work, 120000);
    return 0;
}
