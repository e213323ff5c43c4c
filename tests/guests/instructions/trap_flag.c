// The trap flag: a SIGTRAP after every instruction, at the address of the next one.
#include "guest.h"
extern char stepped[], stepped_end[];
__asm__(".text\nstepped: nop\n mov $1, %eax\n add $2, %eax\n push %rax\n pop %rcx\n"
        "call 1f\n jmp 2f\n1: ret\n2: nop\nstepped_end: nop\n ret\n");
static int count;
static long offsets[64];
static void trap(int sig, siginfo_t *info, void *context) {
    (void)sig;
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    CHECK(info->si_code == TRAP_TRACE);
    offsets[count++] = regs[REG_RIP] - (long)stepped;
    if (regs[REG_RIP] == (long)stepped_end) regs[REG_EFL] &= ~0x100;
    CHECK(count < 64);
}
int main(void) {
    on_signal(SIGTRAP, trap, 0);
    __asm__ volatile("sub $128, %%rsp; pushf; orl $0x100, (%%rsp); popf; call *%0; add $128, %%rsp"
                     : : "r"(stepped) : "rax", "rcx", "cc", "memory");
    for (int i = 0; i < count; i++) {
        if (offsets[i] >= 0 && offsets[i] < 64) say("%ld", offsets[i]);
        else say("outside");
    }
}
