// Scheduling of threads: given, inherited, ceilings; spin locks between priorities; the highest priority is woken first.
// variants: pie static
#include "guest.h"
#include <sched.h>
#include <sys/resource.h>
#include <linux/futex.h>

static pthread_spinlock_t spin;
static long counter;
static int gate, order[4], woken, may_not;

static void *worker(void *unused) {
    (void)unused;
    for (int i = 0; i < 500; i++) {
        pthread_spin_lock(&spin);
        counter++;
        pthread_spin_unlock(&spin);
    }
    struct sched_param kernel;
    int policy = sched_getscheduler(0);
    CHECK(sched_getparam(0, &kernel) == 0);
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    return (void *)(intptr_t)(policy * 10000 + kernel.sched_priority * 100 + CPU_COUNT(&set));
}

static void *waiter(void *number) {
    __atomic_fetch_add(&woken, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &gate, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    int place = __atomic_fetch_add(&woken, 1, __ATOMIC_SEQ_CST);
    order[place] = (int)(intptr_t)number;
    return NULL;
}

static int started(pthread_t *thread, int policy, int priority, void *(*body)(void *), void *arg) {
    pthread_attr_t with;
    pthread_attr_init(&with);
    CHECK(pthread_attr_setinheritsched(&with, PTHREAD_EXPLICIT_SCHED) == 0);
    CHECK(pthread_attr_setschedpolicy(&with, policy) == 0);
    struct sched_param param = {.sched_priority = priority};
    CHECK(pthread_attr_setschedparam(&with, &param) == 0);
    return pthread_create(thread, &with, body, arg);
}

int main(void) {
    struct sched_param param = {.sched_priority = 1};
    // Without the privilege there is nothing to see.
    may_not = sched_setscheduler(0, SCHED_FIFO, &param) != 0;
    if (may_not) {
        say("not allowed");
        return 0;
    }
    param.sched_priority = 0;
    CHECK(sched_setscheduler(0, SCHED_OTHER, &param) == 0);
    CHECK(pthread_spin_init(&spin, 0) == 0);
    pthread_t threads[4];
    void *result;
    for (int policy = SCHED_OTHER; policy <= SCHED_RR; policy++) {
        for (int i = 0; i < 4; i++)
            CHECK(started(&threads[i], policy, policy == SCHED_OTHER ? 0 : 10 * (i + 1), worker, NULL) == 0);
        for (int i = 0; i < 4; i++) {
            CHECK(pthread_join(threads[i], &result) == 0);
            say("policy %d: %ld", policy, (long)(intptr_t)result / 100);
        }
    }
    say("counted %ld", counter);

    // One that waits at a futex is woken by priority, not by when it came.
    for (int i = 0; i < 4; i++) {
        CHECK(started(&threads[i], i == 2 ? SCHED_OTHER : SCHED_FIFO, i == 2 ? 0 : 10 + i * 5 % 12, waiter, (void *)(intptr_t)i) == 0);
        while (syscall(SYS_futex, &gate, FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)4l, &gate, 0) != i + 1) sched_yield();
    }
    woken = 0;
    for (int i = 0; i < 4; i++) {
        CHECK(syscall(SYS_futex, &gate, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 1);
        while (__atomic_load_n(&woken, __ATOMIC_SEQ_CST) != i + 1) sched_yield();
    }
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    say("woken %d %d %d %d", order[0], order[1], order[2], order[3]);

    // Inherited: policy, priority and processors.
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && CPU_COUNT(&one) == 0) CPU_SET(i, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    param.sched_priority = 50;
    CHECK(sched_setscheduler(0, SCHED_FIFO, &param) == 0);
    CHECK(pthread_create(&threads[0], NULL, worker, NULL) == 0);
    CHECK(pthread_join(threads[0], &result) == 0);
    say("inherited %ld", (long)(intptr_t)result);

    // A ceiling raises whoever holds the lock.
    pthread_mutexattr_t with;
    pthread_mutexattr_init(&with);
    CHECK(pthread_mutexattr_setprotocol(&with, PTHREAD_PRIO_PROTECT) == 0);
    CHECK(pthread_mutexattr_setprioceiling(&with, 60) == 0);
    pthread_mutex_t lock;
    CHECK(pthread_mutex_init(&lock, &with) == 0);
    CHECK(pthread_mutex_lock(&lock) == 0);
    CHECK(sched_getparam(0, &param) == 0);
    say("inside %d", param.sched_priority);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    CHECK(sched_getparam(0, &param) == 0);
    say("outside %d", param.sched_priority);
    return 0;
}
