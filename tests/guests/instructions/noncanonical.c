// Jumps, calls and returns to addresses that no mapping could have.
#include "fault.h"
#define CASES(X) \
    X(jump, "", "jmp *%r9") \
    X(call, "", "call *%r9") \
    X(ret, "push %r9", "ret") \
    X(jump_top, "mov $0x7fffffffffff, %rax", "jmp *%rax") \
    X(jump_kernel, "mov $0xffffffff80000000, %rax", "jmp *%rax") \
    X(load_kernel, "mov $0xffffffff80000000, %rax", "mov (%rax), %rcx") \
    X(jump_vsyscall_page_end, "mov $0xffffffffff600fff, %rax", "mov (%rax), %cl")
FAULT_MAIN(CASES)
