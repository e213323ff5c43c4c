// Each kind of interaction, in an order that is the same in every run: after each part everybody is joined.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/futex.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { perror(#x); exit(1); } } while (0)

struct account { long id; pthread_mutex_t lock; } accounts[2] = {
    {1, PTHREAD_MUTEX_INITIALIZER}, {2, PTHREAD_MUTEX_INITIALIZER}};
pthread_mutex_t busy;
pthread_rwlock_t table;
pthread_cond_t ready;
pthread_mutex_t ready_lock = PTHREAD_MUTEX_INITIALIZER;
int is_ready;
pthread_barrier_t barrier;
pthread_once_t once = PTHREAD_ONCE_INIT;
pthread_spinlock_t spin;
sem_t sem;
_Atomic int counter;
int word;
int ends[2], pair[2], event;
mqd_t queue;
int messages, semaphores;
volatile sig_atomic_t handled;

static void join(void *(*start)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, start, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *locks(void *_) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK(pthread_mutex_lock(&accounts[1].lock) == 0);
    CHECK(pthread_mutex_unlock(&accounts[1].lock) == 0);
    CHECK(pthread_mutex_trylock(&busy) == EBUSY);
    CHECK(pthread_mutex_timedlock(&busy, &now) == ETIMEDOUT);
    CHECK(pthread_rwlock_rdlock(&table) == 0);
    CHECK(pthread_rwlock_trywrlock(&table) == EBUSY);
    CHECK(pthread_rwlock_unlock(&table) == 0);
    CHECK(pthread_spin_lock(&spin) == 0);
    CHECK(pthread_spin_unlock(&spin) == 0);
    CHECK(sem_wait(&sem) == 0);
    CHECK(sem_trywait(&sem) == -1);
    return NULL;
}

static void *waiter(void *_) {
    CHECK(pthread_mutex_lock(&ready_lock) == 0);
    while (!is_ready)
        CHECK(pthread_cond_wait(&ready, &ready_lock) == 0);
    CHECK(pthread_mutex_unlock(&ready_lock) == 0);
    return NULL;
}

static void *meets(void *_) {
    int met = pthread_barrier_wait(&barrier);
    CHECK(met == 0 || met == PTHREAD_BARRIER_SERIAL_THREAD);
    return NULL;
}

static void begin(void) { counter = 0; }
static void *first(void *_) {
    CHECK(pthread_once(&once, begin) == 0);
    return NULL;
}

static void *counts(void *_) {
    atomic_fetch_add(&counter, 1);
    return NULL;
}

static void *wakes(void *_) {
    CHECK(syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0);
    return NULL;
}

static void *sends(void *_) {
    long number = 7;
    struct { long type; char text[8]; } message = {1, "x"};
    struct sembuf up = {0, 1, 0};
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(send(pair[0], "x", 1, 0) == 1);
    CHECK(write(event, &number, 8) == 8);
    CHECK(mq_send(queue, "x", 1, 0) == 0);
    CHECK(msgsnd(messages, &message, 8, 0) == 0);
    CHECK(semop(semaphores, &up, 1) == 0);
    return NULL;
}

static void handler(int signo) { handled = signo; }
static void *signals(void *main) {
    CHECK(pthread_kill(*(pthread_t *)main, SIGUSR1) == 0);
    return NULL;
}

static void *stays(void *_) { return NULL; }

int main(void) {
    pthread_t thread;
    CHECK(pthread_mutex_init(&busy, NULL) == 0);
    CHECK(pthread_rwlock_init(&table, NULL) == 0);
    CHECK(pthread_cond_init(&ready, NULL) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_spin_init(&spin, 0) == 0);
    CHECK(sem_init(&sem, 0, 1) == 0);

    CHECK(pthread_mutex_lock(&busy) == 0);
    CHECK(pthread_rwlock_rdlock(&table) == 0);
    join(locks);
    CHECK(pthread_rwlock_unlock(&table) == 0);
    CHECK(pthread_mutex_unlock(&busy) == 0);
    CHECK(pthread_rwlock_wrlock(&table) == 0);
    CHECK(pthread_rwlock_unlock(&table) == 0);
    CHECK(sem_post(&sem) == 0);

    CHECK(pthread_create(&thread, NULL, waiter, NULL) == 0);
    CHECK(pthread_mutex_lock(&ready_lock) == 0);
    is_ready = 1;
    CHECK(pthread_cond_signal(&ready) == 0);
    CHECK(pthread_mutex_unlock(&ready_lock) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_cond_broadcast(&ready) == 0);

    CHECK(pthread_create(&thread, NULL, meets, NULL) == 0);
    meets(NULL);
    CHECK(pthread_join(thread, NULL) == 0);

    first(NULL);
    join(first);
    counts(NULL);
    join(counts);
    join(wakes);
    struct timespec none = {0, 0};
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &none, NULL, 0) == -1);

    char byte[64];
    long number;
    struct { long type; char text[8]; } message;
    struct sembuf down = {0, -1, 0};
    struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 16};
    char name[64];
    snprintf(name, sizeof name, "/clew-kinds-%d", getpid());
    CHECK(pipe(ends) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK((event = eventfd(0, 0)) >= 0);
    CHECK((queue = mq_open(name, O_CREAT | O_RDWR, 0600, &attr)) >= 0);
    mq_unlink(name);
    CHECK((messages = msgget(IPC_PRIVATE, 0600)) >= 0);
    CHECK((semaphores = semget(IPC_PRIVATE, 1, 0600)) >= 0);
    join(sends);
    CHECK(read(ends[0], byte, 1) == 1);
    CHECK(recv(pair[1], byte, 1, 0) == 1);
    CHECK(read(event, &number, 8) == 8 && number == 7);
    CHECK(mq_receive(queue, byte, sizeof byte, NULL) == 1);
    CHECK(msgrcv(messages, &message, 8, 0, 0) == 8);
    CHECK(semop(semaphores, &down, 1) == 0);
    msgctl(messages, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);

    pthread_t self = pthread_self();
    signal(SIGUSR1, handler);
    signal(SIGUSR2, handler);
    CHECK(pthread_create(&thread, NULL, signals, &self) == 0);
    while (pthread_join(thread, NULL) == EINTR) {}
    while (handled != SIGUSR1) {}
    CHECK(kill(getpid(), SIGUSR2) == 0);
    while (handled != SIGUSR2) {}

    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);

    CHECK(pthread_create(&thread, NULL, stays, NULL) == 0);
    CHECK(pthread_detach(thread) == 0);
    CHECK(sem_destroy(&sem) == 0);
    CHECK(pthread_mutex_destroy(&busy) == 0);
    puts("all kinds");
    return 0;
}
