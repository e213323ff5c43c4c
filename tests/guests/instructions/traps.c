// Instructions that trap by themselves: divide errors, breakpoints, undefined and privileged
// instructions, alignment.
// variants: pie nopie static
#include "fault.h"
#define CASES(X) \
    X(div_zero, "", "div %rdx") \
    X(div_memory, "movq $0, (%rsi)", "divq (%rsi)") \
    X(div_overflow, "mov $2, %edx; mov $2, %ecx", "div %rcx") \
    X(idiv_overflow, "mov $0x8000000000000000, %rax; cqo; mov $-1, %rcx", "idiv %rcx") \
    X(div8, "mov $0x1234, %eax; mov $1, %cl", "div %cl") \
    X(int3, "", "int3") \
    X(int_3, "", ".byte 0xcd, 3") \
    X(int1, "", ".byte 0xf1") \
    X(ud2, "", "ud2") \
    X(ud1, "", ".byte 0x0f, 0xb9, 0xc0") \
    X(lock_bad, "", ".byte 0xf0, 0x01, 0xc8") \
    X(no_such_64, "", ".byte 0x06") \
    X(hlt, "", "hlt") \
    X(cli, "", "cli") \
    X(sti, "", "sti") \
    X(in, "", "in %dx, %al") \
    X(out, "", "out %al, $0x80") \
    X(int_81, "", "int $0x81") \
    X(int_4, "", "int $4") \
    X(mov_cr0, "", "mov %cr0, %rax") \
    X(mov_dr7, "", "mov %dr7, %rax") \
    X(rdmsr, "", "rdmsr") \
    X(wbinvd, "", "wbinvd") \
    X(invlpg, "", "invlpg (%rsi)") \
    X(lgdt, "", "lgdt (%rsi)") \
    X(swapgs, "", "swapgs") \
    X(iret_bad, "lea -64(%rsp), %rsp; movq $0, 8(%rsp)", "iretq") \
    X(load_ss, "xor %eax, %eax; mov $0x1234, %ax", "mov %ax, %ss") \
    X(load_ds, "xor %eax, %eax; mov $0x1234, %ax", "mov %ax, %ds") \
    X(ac_load, "pushf; orl $0x40000, (%rsp); popf", "mov 1(%rsi), %eax") \
    X(ac_store, "pushf; orl $0x40000, (%rsp); popf", "mov %ax, 3(%rsi)") \
    X(ldmxcsr_bad, "movl $0xffffffff, (%rsi)", "ldmxcsr (%rsi)")
FAULT_MAIN(CASES)
