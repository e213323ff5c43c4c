// setitimer (all three), timer_create with a signal, a value and a thread, timerfd, alarm.
// variants: pie static
// flags: -lrt
#include "guest.h"
#include <semaphore.h>
#include <sys/time.h>
#include <sys/timerfd.h>
static volatile int hits, value;
static sem_t sem;
static void hit(int sig, siginfo_t *info, void *context) { (void)sig; (void)context; hits++; value = info->si_value.sival_int; }
static void notify(union sigval v) { value = v.sival_int; sem_post(&sem); }
static void interval(const char *name, int which, int sig) {
    on_signal(sig, hit, SA_RESTART);
    hits = 0;
    struct itimerval t = {{0, 3000}, {0, 3000}}, off = {{0, 0}, {0, 0}}, old;
    CHECK(setitimer(which, &t, NULL) == 0);
    volatile unsigned long x = 0;
    while (hits < 5) { x++; if (which == ITIMER_PROF && x % 100000 == 0) getppid(); }
    setitimer(which, &off, &old);
    say("%s %d", name, old.it_interval.tv_usec > 0);
}
int main(void) {
    interval("real", ITIMER_REAL, SIGALRM);
    interval("virtual", ITIMER_VIRTUAL, SIGVTALRM);
    interval("prof", ITIMER_PROF, SIGPROF);
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 55};
    on_signal(SIGRTMIN, hit, 0);
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &e, &timer) == 0);
    struct itimerspec spec = {{0, 2000000}, {0, 1}}, now;
    hits = 0;
    CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
    while (hits < 5) pause();
    CHECK(timer_gettime(timer, &now) == 0);
    say("timer value %d, interval %ld, overrun %d", value, now.it_interval.tv_nsec, timer_getoverrun(timer) >= 0);
    CHECK(timer_delete(timer) == 0);
    sem_init(&sem, 0, 0);
    struct sigevent th = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = notify, .sigev_value.sival_int = 66};
    CHECK(timer_create(CLOCK_REALTIME, &th, &timer) == 0);
    spec = (struct itimerspec){{0, 0}, {0, 1000000}};
    CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
    while (sem_wait(&sem)) {}
    say("thread %d", value);
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    spec = (struct itimerspec){{0, 1000000}, {0, 1000000}};
    CHECK(timerfd_settime(fd, 0, &spec, NULL) == 0);
    uint64_t n = 0, total = 0;
    while (total < 5) { CHECK(read(fd, &n, 8) == 8); total += n; }
    say("timerfd");
    hits = 0;
    on_signal(SIGALRM, hit, 0);
    say("alarm was %u", alarm(1));
    while (!hits) pause();
    say("alarm");
}
