// Handlers that edit the context: registers, flags, the program counter, the mask and a vector
// register; what they see is what was there.
// variants: pie static
#include "guest.h"
extern char fault_here[], resume_here[];
static void edit(int sig, siginfo_t *info, void *context) {
    (void)sig; (void)info;
    ucontext_t *uc = context;
    greg_t *r = uc->uc_mcontext.gregs;
    CHECK(r[REG_RIP] == (greg_t)fault_here);
    CHECK(r[REG_RBX] == 0x1111 && r[REG_R12] == 0x2222 && r[REG_R15] == 0x3333);
    CHECK(uc->uc_mcontext.fpregs->_xmm[3].element[0] == 0x01020304);
    CHECK((r[REG_EFL] & 0x8d5) == 0x8d5);
    r[REG_RIP] = (greg_t)resume_here;
    r[REG_RBX] = 0xb;
    r[REG_RCX] = 0xc;
    r[REG_R11] = 0x11;
    r[REG_R15] = 0xf;
    r[REG_RAX] = 0xa;
    r[REG_EFL] = (r[REG_EFL] & ~0x8d5l) | 0x41; // CF and ZF
    uc->uc_mcontext.fpregs->_xmm[3].element[0] = 0x05060708;
    sigaddset(&uc->uc_sigmask, SIGUSR2);
}
static void skip(int sig, siginfo_t *info, void *context) {
    (void)sig; (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}
static volatile uint64_t *wanted;
static void retry(int sig, siginfo_t *info, void *context) {
    (void)sig; (void)context;
    CHECK(mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE) == 0);
}
int main(void) {
    on_signal(SIGSEGV, edit, 0);
    uint64_t a, b, c, r11, r15, flags;
    uint32_t x;
    __asm__ volatile("sub $128, %%rsp; mov $0x01020304, %%eax; movd %%eax, %%xmm3; mov $0x1111, %%ebx; mov $0x2222, %%r12d; mov $0x3333, %%r15d\n"
                     "push $0x8d5; popf\n"
                     "fault_here: mov %%rax, 0x10\n ud2\n"
                     "resume_here: pushf; pop %%rdx; movd %%xmm3, %%esi; add $128, %%rsp; mov %%r11, %%rdi; mov %%r15, %%r8"
                     : "=a"(a), "=b"(b), "=c"(c), "=d"(flags), "=S"(x), "=D"(r11) : : "r8", "r9", "r10", "r11", "r12", "r15", "xmm3", "cc", "memory");
    __asm__("mov %%r8, %0" : "=r"(r15));
    say("%lx %lx %lx %lx %x flags %lx", a, b, c, r11, x, flags & 0x8d5);
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    say("mask edited %d", sigismember(&now, SIGUSR2));
    on_signal(SIGILL, skip, 0);
    for (int i = 0; i < 1000; i++) __asm__ volatile("ud2");
    say("skipped");
    // A handler that repairs and returns: the instruction is done again.
    on_signal(SIGSEGV, retry, 0);
    char *pages = mmap(NULL, 4096 * 50, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 50; i++) pages[4096 * i + i] = (char)i;
    long sum = 0;
    for (int i = 0; i < 50; i++) sum += pages[4096 * i + i];
    say("repaired %ld", sum);
    // A page fault in the middle of a system call is EFAULT, not a signal.
    char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("efault %d", write(1, none, 1) == -1 && errno == EFAULT);
    (void)wanted; (void)r15;
}
