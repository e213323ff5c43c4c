// Faults of instructions that save state: misaligned, unmapped, read-only, across pages, on a page with code.
// flags: -mxsave -D_GNU_SOURCE
// cpu: xsave xsavec
// variants: pie static
#include "guest.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
static sigjmp_buf back;
static char *base;
static void caught(int sig, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    // The page: which byte of it is tried first differs between CPUs.
    long addr = (long)info->si_addr >> 12;
    if (addr) addr -= (long)base >> 12;
    // The x87 state is as it was before the instruction.
    say("signal %d code %d addr %lx trap %ld write %d x87 %x %x %x", sig, info->si_code, addr, (long)uc->uc_mcontext.gregs[REG_TRAPNO],
        (int)(uc->uc_mcontext.gregs[REG_ERR] >> 1 & 1), uc->uc_mcontext.fpregs->cwd, uc->uc_mcontext.fpregs->swd,
        uc->uc_mcontext.fpregs->ftw);
    siglongjmp(back, 1);
}
#define TRY(what, code) \
    do { \
        if (!sigsetjmp(back, 1)) { \
            code; \
            say("%s: done", what); \
        } else \
            say("%s: faulted", what); \
    } while (0)
static void xsave(char *p) { __asm__ volatile("xsave (%0)" : : "r"(p), "a"(7), "d"(0) : "memory"); }
static void xsavec(char *p) { __asm__ volatile("xsavec (%0)" : : "r"(p), "a"(7), "d"(0) : "memory"); }
static void fxsave(char *p) { __asm__ volatile("fxsave (%0)" : : "r"(p) : "memory"); }
static void fnsave(char *p) { __asm__ volatile("fnsave (%0)" : : "r"(p) : "memory"); }
static void fnstenv(char *p) { __asm__ volatile("fnstenv (%0)" : : "r"(p) : "memory"); }

int main(void) {
    struct sigaction act = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, 0), sigaction(SIGBUS, &act, 0);
    base = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(base, 0, 2 * 4096);
    munmap(base + 4096, 4096);
    mprotect(base + 3 * 4096, 4096, PROT_READ);
    void (*const all[])(char *) = {xsave, xsavec, fxsave, fnsave, fnstenv};
    const char *const names[] = {"xsave", "xsavec", "fxsave", "fnsave", "fnstenv"};
    for (int i = 0; i < 5; i++) {
        TRY(names[i], all[i](base));
        TRY("by 8", all[i](base + 8));
        TRY("by 16", all[i](base + 16));
        TRY("unmapped", all[i](base + 4096));
        TRY("read-only", all[i](base + 3 * 4096));
        TRY("nowhere", all[i]((char *)0x8000000000000000));
        TRY("null", all[i](0));
    }
    // On the stack a bad address is the stack's.
    TRY("stack", __asm__ volatile("mov %%rsp, %%rbx; movabs $0x4000000000000000, %%rcx; xchg %%rcx, %%rbp; fnstenv (%%rbp); xchg %%rcx, %%rbp" : : : "rbx", "rcx", "memory"));
    unsigned short control = 0x340, after;
    TRY("fnsave", __asm__ volatile("fninit; fldcw %0; fldpi; fnsave (%1)" : : "m"(control), "r"(base + 4096)));
    TRY("fnstenv", __asm__ volatile("fninit; fldcw %0; fldpi; fnstenv (%1)" : : "m"(control), "r"(base + 4096)));
    // Onto a page whose code has been run.
    char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code + 2048, (char[]){0xb8, 1, 0, 0, 0, 0xc3}, 6); // mov eax, 1; ret
    int (*volatile run)(void) = (int (*)(void))(code + 2048);
    CHECK(run() == 1);
    xsavec(code);
    CHECK(code[512] != 0);
    __asm__ volatile("fninit; fnstcw %0" : "=m"(after));
    fnstenv(code + 1024);
    CHECK((code[1024] & 255) == (after & 255) && run() == 1);
    // Code that is overwritten by an image is new code: 7f 03 is jg +3.
    fnstenv(code + 2048);
    CHECK((code[2048] & 255) == 0x7f);
    say("ok");
}
