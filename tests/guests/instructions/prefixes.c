// Odd but legal encodings: redundant prefixes, long nops, rep ret, bnd jumps, 66-prefixed
// calls in loops, and instructions of the full 15 bytes.
#include "guest.h"
int main(void) {
    long r = 0;
    __asm__ volatile(".byte 0x2e,0x2e,0x2e,0x2e,0x48,0xff,0xc0\n"              // cs cs cs cs inc %rax
                     ".byte 0x66,0x66,0x66,0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0\n" // long nop
                     ".byte 0x40,0x90\n .byte 0xf3,0x0f,0x1e,0xfa\n"            // rex nop, endbr64
                     ".byte 0xf2,0xeb,0x02\n ud2\n"                             // bnd jmp
                     ".byte 0x2e,0x74,0x02\n nop\n nop\n"                       // hinted jz
                     ".byte 0x66,0x2e,0x2e,0x2e,0x2e,0x2e,0x2e,0x2e,0x2e,0x2e,0x2e,0x48,0xff,0xc0,0x90\n"
                     "jmp 2f\n1: .byte 0xf3,0xc3\n 2: call 1b\n"                // rep ret
                     "lea 3f(%%rip), %%rdx\n .byte 0x3e,0xff,0xe2\n ud2\n 3:\n" // notrack jmp
                     "xchg %%ax, %%ax\n .byte 0x48,0x87,0xc0\n"                 // xchg rax,rax
                     : "+a"(r) : : "rdx", "cc", "memory");
    say("%ld", r);
    // 16-bit push and pop, call with a data prefix ignored, push of segments.
    long sp0, sp1, v;
    __asm__ volatile("mov %%rsp, %0; pushw $0x1234; movzwl (%%rsp), %k2; popw %%cx; mov %%rsp, %1" : "=&r"(sp0), "=&r"(sp1), "=&r"(v) : : "rcx", "memory");
    say("%d %lx", sp0 == sp1, v);
    __asm__ volatile("push %%fs; pop %0" : "=r"(v) : : "memory");
    say("fs %lx", v);
    __asm__ volatile("mov %%rsp, %%rdx; push %%rsp; pop %0; sub %%rdx, %0" : "=&r"(v) : : "rdx", "memory", "cc");
    say("push rsp %ld", v);
    __asm__ volatile("push $-5; pop %0" : "=r"(v) : : "memory");
    say("push imm %ld", v);
    __asm__ volatile("mov %%rsp, %%rdx; push $7; push (%%rsp); pop 8(%%rsp); pop %0; sub $8, %%rsp; mov %%rdx, %%rsp" : "=&r"(v) : : "rdx", "memory", "cc");
    say("push rsp-relative %ld", v);
    // pop (%rsp) addresses after the increment.
    __asm__ volatile("sub $128, %%rsp; push $1; push $42; pop (%%rsp); pop %0; add $128, %%rsp" : "=&r"(v) : : "memory", "cc");
    say("pop to stack %ld", v);
    // call through the stack pointer: the target is read before the push.
    __asm__ volatile("sub $128, %%rsp; lea 1f(%%rip), %0; push %0; call *(%%rsp); jmp 2f; 1: mov $5, %k0; ret; 2: add $136, %%rsp" : "=&r"(v) : : "memory", "cc");
    say("call *(rsp) %ld", v);
    // ret with an immediate.
    __asm__ volatile("sub $128, %%rsp; mov %%rsp, %0; push $1; push $2; call 1f; sub %%rsp, %0; add $128, %%rsp; jmp 2f; 1: ret $16; 2:" : "=&r"(v) : : "memory", "cc");
    say("ret imm %ld", v);
    // call to the next instruction.
    __asm__ volatile("sub $128, %%rsp; call 1f; 1: pop %0; lea 1b(%%rip), %%rdx; sub %%rdx, %0; add $128, %%rsp" : "=&r"(v) : : "rdx", "memory", "cc");
    say("call next %ld", v);
    // The red zone is left alone by everything in between.
    __asm__ volatile("movq $99, -64(%%rsp); mov $1000, %%ecx; 1: dec %%ecx; jnz 1b; lea 2f(%%rip), %%rdx; jmp *%%rdx; 2: mov $39, %%eax; syscall; mov -64(%%rsp), %0" : "=&r"(v) : : "rax", "rcx", "rdx", "r11", "memory", "cc");
    say("red zone %ld", v);
}
