// Lock-prefixed read-modify-write from four threads: no update is lost.
#include "guest.h"
static long add, sub, inc, or_bits, xchg_sum, cas, xadd_max;
static unsigned char byte;
static short word;
static __int128 wide __attribute__((aligned(16)));
enum { THREADS = 4, ROUNDS = 30000 };
static void *work(void *arg) {
    long id = (long)arg;
    for (int i = 0; i < ROUNDS; i++) {
        __atomic_fetch_add(&add, 3, __ATOMIC_SEQ_CST);
        __atomic_sub_fetch(&sub, 2, __ATOMIC_RELAXED);
        __asm__ volatile("lock incq %0" : "+m"(inc) : : "cc");
        __asm__ volatile("lock incb %0" : "+m"(byte) : : "cc");
        __asm__ volatile("lock addw $3, %0" : "+m"(word) : : "cc");
        __atomic_fetch_or(&or_bits, 1l << (i + id) % 63, __ATOMIC_ACQ_REL);
        long seen = cas;
        while (!__atomic_compare_exchange_n(&cas, &seen, seen + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
        long v = 1;
        v = __atomic_exchange_n(&xchg_sum, v, __ATOMIC_SEQ_CST);
        __asm__ volatile("lock xadd %0, %1" : "+r"(v), "+m"(xadd_max) : : "cc", "memory");
    }
    return NULL;
}
int main(void) {
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK(!pthread_create(&t[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    (void)wide;
    say("%ld %ld %ld %d %d %lx %ld %ld", add, sub, inc, byte, word, or_bits, cas, xadd_max);
}
