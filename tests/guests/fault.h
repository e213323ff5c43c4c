// Runs short pieces of assembly that fault, with every register known, and prints what the
// handler was told: signal, code, address, program counter and registers, all relative to
// what went in, so that the text is the same wherever things are mapped.
#pragma once
#include "guest.h"

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, FLAGS, COUNT };
static const int greg[COUNT] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_R8,
                                REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_EFL};
static const char *const name_of[COUNT] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8",
                                           "r9", "r10", "r11", "r12", "r13", "r14", "r15", "flags"};

uint64_t fault_in[COUNT], fault_rsp, fault_code;
static struct { int sig, code; void *addr; uint64_t rip, rsp, regs[COUNT]; uint64_t top_of_stack; } got;
static char *area; // pages: 0 read-write, 1 none, 2 read-only, 3 read-write data, 4 unmapped
enum { PAGE = 4096 };

// fault_enter loads the registers and jumps to the case; fault_leave brings back the caller.
void fault_enter(void);
extern char fault_leave[], fault_none[];
__asm__(".pushsection .text\n"
        "fault_enter: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; pushf\n"
        " mov %rsp, fault_rsp(%rip)\n"
        " push fault_in+120(%rip); popf\n"
        " mov fault_in+0(%rip), %rax; mov fault_in+8(%rip), %rbx; mov fault_in+16(%rip), %rcx\n"
        " mov fault_in+24(%rip), %rdx; mov fault_in+32(%rip), %rsi; mov fault_in+40(%rip), %rdi\n"
        " mov fault_in+48(%rip), %rbp; mov fault_in+56(%rip), %r8; mov fault_in+64(%rip), %r9\n"
        " mov fault_in+72(%rip), %r10; mov fault_in+80(%rip), %r11; mov fault_in+88(%rip), %r12\n"
        " mov fault_in+96(%rip), %r13; mov fault_in+104(%rip), %r14; mov fault_in+112(%rip), %r15\n"
        " jmp *fault_code(%rip)\n"
        "fault_none: ud2\n"
        "fault_leave: mov fault_rsp(%rip), %rsp\n"
        " popf; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; cld; ret\n"
        ".popsection\n");

// A piece: code before, the instruction that faults, and nothing after it. The jump reads the flags: those
// that nothing can read before they are overwritten needn't be right in a fault's context.
#define CASE(name, before, instruction)                                                         \
    extern char case_##name[], at_##name[], after_##name[];                                     \
    __asm__(".pushsection .text\n case_" #name ": jc 77f; 77: " before "\n at_" #name ": " instruction \
            "\n after_" #name ": jmp fault_none\n .popsection\n");

static void fault_handler(int sig, siginfo_t *info, void *context) {
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    got.sig = sig;
    got.code = info->si_code;
    got.addr = info->si_addr;
    got.rip = regs[REG_RIP];
    got.rsp = regs[REG_RSP];
    for (int i = 0; i < COUNT; i++) got.regs[i] = regs[greg[i]];
    regs[REG_RIP] = (greg_t)fault_leave;
    regs[REG_EFL] &= ~0x40d00L; // AC, DF, TF, OF off
}

// A value in words: relative to the area or to the stack if it points there.
static const char *relative(uint64_t value, char *text) {
    uint64_t fs;
    __asm__("mov %%fs:0, %0" : "=r"(fs));
    if (value == (uint64_t)fault_none)
        sprintf(text, "none");
    else if (value + fs - (uint64_t)area < 16 * PAGE)
        sprintf(text, "fs:area+%ld", (long)(value + fs - (uint64_t)area));
    else if (value - (uint64_t)area < 16 * PAGE)
        sprintf(text, "area+%ld", (long)(value - (uint64_t)area));
    else if (fault_rsp - value + 8192 < 16384)
        sprintf(text, "stack%+ld", (long)(value - fault_rsp));
    else
        sprintf(text, "%#lx", (unsigned long)value);
    return text;
}

static void fault_setup(void) {
    area = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    for (int i = 0; i < 4 * PAGE; i++) area[i] = (char)(i * 7 + 1);
    CHECK(mprotect(area + PAGE, PAGE, PROT_NONE) == 0);
    CHECK(mprotect(area + 2 * PAGE, PAGE, PROT_READ) == 0);
    CHECK(munmap(area + 4 * PAGE, 12 * PAGE) == 0);
    stack_t stack = {.ss_sp = malloc(1 << 18), .ss_size = 1 << 18};
    CHECK(sigaltstack(&stack, NULL) == 0);
    int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (int i = 0; i < 5; i++) on_signal(signals[i], fault_handler, SA_ONSTACK);
}

static void fault_registers(void) {
    for (int i = 0; i < COUNT; i++) fault_in[i] = 0x0101010101010101ul * (i + 1);
    fault_in[FLAGS] = 0x8d7; // CF PF AF ZF SF OF, and the two that are always set
    fault_in[RBX] = (uint64_t)area + 2 * PAGE; // read-only
    fault_in[RDI] = (uint64_t)area + PAGE;     // no access
    fault_in[RSI] = (uint64_t)area + 64;       // good
    fault_in[RDX] = 0;
    fault_in[RCX] = 100;
    fault_in[R8] = (uint64_t)area + 5 * PAGE;  // nothing mapped
    fault_in[R9] = 0x8000000000000000ul;       // not canonical
    fault_in[R10] = (uint64_t)area + 3 * PAGE; // data, not executable
}

static void fault_report(const char *name, char *code, char *at, char *after) {
    char text[64], text2[64];
    fault_code = (uint64_t)code;
    memset(&got, 0, sizeof got);
    fault_enter();
    char line[512], *end = line;
    end += sprintf(end, "%-14s sig %d code %d", name, got.sig, got.code);
    const char *addr = got.addr == at ? "instruction" : got.addr == after ? "after" : relative((uint64_t)got.addr, text);
    end += sprintf(end, " addr %s", addr);
    const char *pc = got.rip == (uint64_t)at ? "instruction" : got.rip == (uint64_t)after ? "after" : relative(got.rip, text);
    end += sprintf(end, " pc %s sp %s", pc, relative(got.rsp, text2));
    for (int i = 0; i < COUNT; i++) {
        // RF is the processor's own affair.
        uint64_t now = got.regs[i] & (i == FLAGS ? ~0x10000ul : ~0ul);
        if (now != fault_in[i]) {
            const char *shown = now == (uint64_t)after ? "after" : relative(now, text);
            end += sprintf(end, " %s=%s", name_of[i], shown);
        }
    }
    say("%s", line);
}
#define REPORT(name) fault_report(#name, case_##name, at_##name, after_##name)

// A whole program: each of the cases in turn.
#define FAULT_DEFINE(name, before, at) CASE(name, before, at)
#define FAULT_RUN(name, before, at) fault_registers(); REPORT(name);
#define FAULT_MAIN(CASES)   \
    CASES(FAULT_DEFINE)     \
    int main(void) {        \
        fault_setup();      \
        CASES(FAULT_RUN)    \
        say("done");        \
    }
