// pthread_kill, tgkill, process signals taken by any thread that doesn't block them, and a
// signal storm over threads that lock, allocate and print.
// variants: pie static
#include "guest.h"
#include <sched.h>
#include <sys/time.h>
static __thread volatile int mine;
static volatile int total, ready, stop;
static void hit(int sig) { (void)sig; mine++; __atomic_add_fetch(&total, 1, __ATOMIC_SEQ_CST); }
static void *receiver(void *unused) {
    (void)unused;
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (mine < 50) sched_yield();
    return (void *)(long)mine;
}
static void *blocked(void *unused) {
    (void)unused;
    sigset_t set;
    sigfillset(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (!stop) sched_yield();
    return (void *)(long)mine;
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *busy(void *arg) {
    long sum = 0;
    for (int i = 0; i < 20000; i++) {
        void *p = malloc(16 + i % 2000);
        pthread_mutex_lock(&lock);
        sum += i ^ (long)arg;
        pthread_mutex_unlock(&lock);
        free(p);
    }
    return (void *)sum;
}
int main(void) {
    struct sigaction a = {.sa_handler = hit, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &a, NULL);
    sigaction(SIGALRM, &a, NULL);
    pthread_t t[4];
    for (int i = 0; i < 3; i++) CHECK(!pthread_create(&t[i], NULL, receiver, NULL));
    while (ready < 3) sched_yield();
    for (int k = 0; k < 50; k++)
        for (int i = 0; i < 3; i++) {
            int before = total;
            CHECK(!pthread_kill(t[i], SIGUSR1));
            while (total == before) sched_yield();
        }
    for (int i = 0; i < 3; i++) { void *r; pthread_join(t[i], &r); say("thread %d got %ld", i, (long)r); }
    ready = 0;
    CHECK(!pthread_create(&t[0], NULL, blocked, NULL));
    while (!ready) sched_yield();
    total = 0;
    for (int i = 0; i < 20; i++) { int before = total; kill(getpid(), SIGUSR1); while (total == before) sched_yield(); }
    stop = 1;
    void *r;
    pthread_join(t[0], &r);
    say("process signals: main %d, blocked thread %ld", mine, (long)r);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    long sum = 0;
    for (long i = 0; i < 4; i++) CHECK(!pthread_create(&t[i], NULL, busy, (void *)i));
    for (int i = 0; i < 4; i++) { pthread_join(t[i], &r); sum += (long)r; }
    while (total < 30) {}
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    say("storm %ld", sum);
    say("gone thread %d", syscall(SYS_tgkill, getpid(), 1, SIGUSR1) == -1 && errno == ESRCH);
}
