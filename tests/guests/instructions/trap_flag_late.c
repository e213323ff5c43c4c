// The trap flag is set long after anything else has happened: a check of registers is due right then, and sees it.
// variants: pie
#include "guest.h"
static volatile int count;
static char room[32 << 20];
static void trap(int sig, siginfo_t *info, void *context) { (void)sig; (void)info; (void)context; count++; }
// No branch and no call: nothing to look at the time for.
static inline __attribute__((always_inline)) void fill(void) {
    void *to = room;
    long length = sizeof room;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(length) : "a"(1) : "memory");
}
#define FOUR(x) x; x; x; x;
int main(void) {
    on_signal(SIGTRAP, trap, 0);
    FOUR(FOUR(FOUR(fill())))
    __asm__ volatile("sub $128, %%rsp; pushf; orl $0x100, (%%rsp); popf; nop; nop; pushf; andl $~0x100, (%%rsp); popf; add $128, %%rsp"
                     : : : "cc", "memory");
    say("%d traps", count);
}
