// A timer signal arrives in loops without calls or system calls: a self-jump, a two-instruction
// loop, a long rep instruction, straight-line code with a far jump back.
// variants: pie static
#include "guest.h"
#include <sys/time.h>
static volatile int hits;
extern char self_jump[], after_self[], short_loop[], after_short[];
static void leave(int sig, siginfo_t *info, void *context) {
    (void)sig; (void)info;
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    hits++;
    if (r[REG_RIP] == (greg_t)self_jump) r[REG_RIP] = (greg_t)after_self;
    if (r[REG_RIP] >= (greg_t)short_loop && r[REG_RIP] < (greg_t)after_short) r[REG_RIP] = (greg_t)after_short;
}
static void arm(void) {
    struct itimerval timer = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}
int main(void) {
    on_signal(SIGALRM, leave, SA_RESTART);
    arm();
    __asm__ volatile("self_jump: jmp self_jump\nafter_self:");
    say("left the self jump");
    uint64_t n = 0;
    __asm__ volatile("short_loop: inc %0\n jmp short_loop\nafter_short:" : "+r"(n) : : "cc");
    say("left the short loop");
    int before = hits;
    while (hits < before + 5) {}
    say("a spinning read");
    before = hits;
    char *block = malloc(1 << 20);
    while (hits < before + 3) {
        void *d = block;
        size_t c = 1 << 20;
        __asm__ volatile("rep stosb" : "+D"(d), "+c"(c) : "a"(1) : "memory");
        CHECK(c == 0);
    }
    say("rep stosb");
    // Conditional loop that only a handler's edit of memory can end, flags in use.
    before = hits;
    uint64_t carry = 0;
    __asm__ volatile("stc\n1: mov %1, %%ecx\n mov %2, %%edx\n adc $0, %0\n lea 3(%%rdx), %%edx\n cmp %%edx, %%ecx\n jl 1b" : "+r"(carry) : "m"(hits), "r"(before) : "rcx", "rdx", "cc");
    say("carry loop");
}
