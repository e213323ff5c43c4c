// Barriers, reader-writer locks, spin locks, semaphores (unnamed and named).
// variants: pie static musl
// flags: -lrt
#include "guest.h"
#include <semaphore.h>
enum { THREADS = 6, ROUNDS = 400 };
static pthread_barrier_t barrier;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t semaphore;
static long a, b, spun, serial, inside, worst;
static void *work(void *arg) {
    long id = (long)arg;
    for (int i = 0; i < ROUNDS; i++) {
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) __atomic_add_fetch(&serial, 1, __ATOMIC_SEQ_CST);
        if (id < 2) {
            pthread_rwlock_wrlock(&rwlock);
            a++, b++;
            pthread_rwlock_unlock(&rwlock);
        } else {
            pthread_rwlock_rdlock(&rwlock);
            CHECK(a == b);
            pthread_rwlock_unlock(&rwlock);
        }
        pthread_spin_lock(&spin);
        spun++;
        pthread_spin_unlock(&spin);
        while (sem_wait(&semaphore)) {}
        long now = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        if (now > worst) worst = now;
        __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        sem_post(&semaphore);
    }
    return NULL;
}
int main(void) {
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_spin_init(&spin, 0);
    sem_init(&semaphore, 0, 2);
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK(!pthread_create(&t[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    say("%ld %ld %ld %d", a, spun, serial, worst <= 2);
    say("try %d", pthread_rwlock_trywrlock(&rwlock));
    say("busy %d", pthread_rwlock_tryrdlock(&rwlock) == EBUSY);
    int value;
    sem_getvalue(&semaphore, &value);
    say("value %d", value);
    char name[64];
    snprintf(name, sizeof name, "/clew-test-%d", getpid());
    sem_t *named = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    CHECK(named != SEM_FAILED);
    pid_t pid = fork();
    if (!pid) {
        sem_post(named);
        _exit(0);
    }
    while (sem_wait(named)) {}
    waitpid(pid, NULL, 0);
    sem_unlink(name);
    say("named");
}
