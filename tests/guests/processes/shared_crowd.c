// Eight processes want one page, whose owner runs code that counts ticks without touching flags: it is disturbed by
// several at once.
#include "guest.h"
#define PROCESSES 8
#define ROUNDS 400
// lea and ret: flags stay live over the tick.
__attribute__((noinline)) static long one(long n) { return n + 1; }
__attribute__((noinline)) static long two(long n) { return n + 2; }
int main(void) {
    volatile long *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    long (*volatile add[2])(long) = {one, two};
    int self = 0;
    for (int n = 1; n < PROCESSES && self == 0; n++)
        if (fork() == 0) self = n;
    long sum = 0;
    for (int n = 0; n < ROUNDS; n++) {
        __atomic_fetch_add(&page[n & 7], 1, __ATOMIC_SEQ_CST);
        for (int m = 0; m < 30000; m++) sum = add[m & 1](sum);
    }
    CHECK(sum == ROUNDS * 45000L);
    if (self != 0) _exit(0);
    int ended = 0, status;
    while (wait(&status) > 0) ended += status == 0;
    long counted = 0;
    for (int n = 0; n < 8; n++) counted += page[n];
    say("%d children, %ld rounds", ended, counted);
}
