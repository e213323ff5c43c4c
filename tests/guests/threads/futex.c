// Futex operations used directly: wait and wake, bitsets, requeue, wake_op, time-outs, errors.
#include "guest.h"
#include <linux/futex.h>
static int word, word2, woken, waiting;
static long futex(int *p, int op, int val, const void *timeout, int *p2, int val3) { return syscall(SYS_futex, p, op, val, timeout, p2, val3); }
static void *waiter(void *arg) {
    int *p = arg ? arg : &word;
    __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(p, __ATOMIC_SEQ_CST) == 0) futex(p, FUTEX_WAIT, 0, NULL, NULL, 0);
    __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
int main(void) {
    struct timespec t = {0, 1000000};
    say("again %d", futex(&word, FUTEX_WAIT, 5, NULL, NULL, 0) == -1 && errno == EAGAIN);
    say("timeout %d", futex(&word, FUTEX_WAIT, 0, &t, NULL, 0) == -1 && errno == ETIMEDOUT);
    say("bad op %d", futex(&word, 120, 0, NULL, NULL, 0) == -1 && errno == ENOSYS);
    say("unaligned %d", futex((int *)((char *)&word + 1), FUTEX_WAIT, 0, NULL, NULL, 0) == -1 && errno == EINVAL);
    say("fault %d", futex((int *)64, FUTEX_WAIT, 0, NULL, NULL, 0) == -1 && errno == EFAULT);
    say("nobody %ld", futex(&word, FUTEX_WAKE, 10, NULL, NULL, 0));
    clock_gettime(CLOCK_MONOTONIC, &t);
    say("absolute %d", futex(&word, FUTEX_WAIT_BITSET, 0, &t, NULL, -1) == -1 && errno == ETIMEDOUT);
    say("no bits %d", futex(&word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0) == -1 && errno == EINVAL);
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) CHECK(!pthread_create(&threads[i], NULL, waiter, NULL));
    while (__atomic_load_n(&waiting, __ATOMIC_SEQ_CST) < 5) {}
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&woken, __ATOMIC_SEQ_CST) < 5) futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0);
    for (int i = 0; i < 5; i++) pthread_join(threads[i], NULL);
    say("woken %d", woken);
    // Requeue: sleepers of one word are moved to the other and woken there.
    word = waiting = woken = 0;
    for (int i = 0; i < 3; i++) CHECK(!pthread_create(&threads[i], NULL, waiter, NULL));
    long moved = 0;
    while (moved < 3) {
        long n = futex(&word, FUTEX_CMP_REQUEUE, 0, (void *)10, &word2, 0);
        CHECK(n >= 0);
        moved += n;
    }
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    say("on the old word %ld", futex(&word, FUTEX_WAKE, 10, NULL, NULL, 0));
    say("on the new word %ld", futex(&word2, FUTEX_WAKE, 10, NULL, NULL, 0));
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    say("mismatch %d", futex(&word, FUTEX_CMP_REQUEUE, 0, (void *)1, &word2, 77) == -1 && errno == EAGAIN);
    // wake_op: adds to word2 and compares its old value.
    word2 = 5;
    futex(&word, FUTEX_WAKE_OP, 1, (void *)1, &word2, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 5));
    say("wake_op %d", word2);
}
