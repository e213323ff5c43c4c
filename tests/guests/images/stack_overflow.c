// Endless recursion ends in SIGSEGV, handled on an alternate stack; then without one: death.
// variants: pie static musl
// status: signal SEGV
#include "guest.h"
static sigjmp_buf out;
static char *top;
static volatile int depth;
static void overflow(int sig, siginfo_t *info, void *context) {
    (void)sig;
    char here;
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    char *address = info->si_addr;
    CHECK(address < top && address > top - 64 * 1024 * 1024);
    CHECK((char *)regs[REG_RSP] < top && (char *)regs[REG_RSP] > top - 64 * 1024 * 1024);
    CHECK(!(&here < top && &here > top - 16 * 1024 * 1024));
    siglongjmp(out, 1);
}
__attribute__((noinline)) static int endless(int n) {
    volatile char frame[256];
    frame[n & 255] = 1;
    depth++;
    return endless(n + 1) + frame[n & 255];
}
int main(void) {
    char here;
    top = &here + 4096;
    stack_t stack = {.ss_sp = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = 65536};
    CHECK(sigaltstack(&stack, NULL) == 0);
    on_signal(SIGSEGV, overflow, SA_ONSTACK);
    for (int i = 0; i < 3; i++) {
        depth = 0;
        if (sigsetjmp(out, 1) == 0) endless(0);
        say("round %d: %s", i, depth > 10000 ? "deep" : "shallow");
    }
    signal(SIGSEGV, SIG_DFL);
    endless(0);
}
