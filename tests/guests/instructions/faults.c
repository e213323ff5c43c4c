// Memory faults in every kind of instruction: the handler sees the instruction's own
// address and the registers as they were before it.
// variants: pie nopie static
#include "fault.h"
#define CASES(X) \
    X(load, "", "mov (%rdi), %rax") \
    X(load_unmapped, "", "mov 8(%r8), %eax") \
    X(load_indexed, "mov $2, %ecx", "mov (%rdi,%rcx,8), %rcx") \
    X(load_self, "mov %rdi, %rax", "mov (%rax), %rax") \
    X(load_null, "xor %eax, %eax", "mov 16(%rax), %rdx") \
    X(load_nocanon, "", "mov (%r9), %rdx") \
    X(store, "", "mov %rax, (%rbx)") \
    X(store_across, "", "mov %rax, -4(%rdi)") \
    X(add_memory, "", "add %rax, (%rbx)") \
    X(adc_memory, "stc", "adc (%rdi), %rax") \
    X(cmp_memory, "", "cmp %rax, (%rdi)") \
    X(xchg_memory, "", "xchg %rax, (%rbx)") \
    X(lock_xadd, "", "lock xadd %rax, (%rbx)") \
    X(cmpxchg_ro, "mov (%rbx), %rax", "lock cmpxchg %rcx, (%rbx)") \
    X(cmov_load, "clc", "cmovc (%rdi), %rax") \
    X(setcc_store, "", "setc (%rbx)") \
    X(bt_far, "mov $32768, %rcx", "bt %rcx, (%rsi)") \
    X(inc_memory, "", "incq (%rbx)") \
    X(shl_memory, "mov $3, %ecx", "shlq %cl, (%rbx)") \
    X(push_ro, "lea 8(%rbx), %rsp", "push %rax") \
    X(push_imm, "lea 8(%rbx), %rsp", "push $77") \
    X(push_memory, "", "push (%rdi)") \
    X(push_flags, "lea 8(%rbx), %rsp", "pushf") \
    X(pop_none, "mov %rdi, %rsp", "pop %rax") \
    X(pop_memory, "push $5", "pop (%rbx)") \
    X(call_bad_stack, "lea 8(%rbx), %rsp", "call fault_none") \
    X(call_ind_stack, "lea 8(%rbx), %rsp; lea fault_none(%rip), %rax", "call *%rax") \
    X(call_memory, "", "call *(%rdi)") \
    X(call_bad_target, "", "call *%rdi") \
    X(call_unmapped, "", "call *%r8") \
    X(call_data, "", "call *%r10") \
    X(call_null, "xor %eax, %eax", "call *%rax") \
    X(jump_memory, "", "jmp *(%rdi)") \
    X(jump_indexed, "mov $4, %ecx", "jmp *(%rdi,%rcx,8)") \
    X(jump_bad_target, "", "jmp *%rdi") \
    X(jump_data, "", "jmp *%r10") \
    X(jump_null, "xor %eax, %eax", "jmp *%rax") \
    X(ret_bad_stack, "mov %rdi, %rsp", "ret") \
    X(ret_bad_target, "push %r8", "ret") \
    X(ret_imm_target, "push $1; push $2; push %r8", "ret $16") \
    X(ret_data, "push %r10", "ret") \
    X(enter_ro, "lea 8(%rbx), %rsp", "enter $16, $0") \
    X(leave_none, "mov %rdi, %rbp", "leave") \
    X(movsb_source, "mov %rsi, %rax; lea -16(%rdi), %rsi; mov %rax, %rdi", "rep movsb") \
    X(movsb_target, "lea -24(%rdi), %rdi", "rep movsb") \
    X(movsq_target, "lea -24(%rdi), %rdi", "rep movsq") \
    X(movsb_down, "lea 4096(%rdi), %rdi; lea 3(%rbx), %rax; mov %rsi, %rdi; xchg %rax, %rsi; std", "rep movsb") \
    X(stosb_target, "lea -5(%rdi), %rdi", "rep stosb") \
    X(stosq_ro, "mov %rbx, %rdi", "rep stosq") \
    X(cmpsb_source, "lea -9(%rdi), %rsi; mov %rsi, %rdi", "repe cmpsb") \
    X(scasb_target, "lea -9(%rdi), %rdi; mov $0xff, %eax", "repne scasb") \
    X(lodsb_source, "mov %rdi, %rsi", "lodsb") \
    X(movsb_single, "", "movsb") \
    X(rep_zero, "xor %ecx, %ecx; rep movsb", "mov (%rdi), %eax") \
    X(xlat, "mov %rdi, %rbx; mov $5, %eax", "xlatb") \
    X(sse_load, "", "movups (%rdi), %xmm0") \
    X(sse_unaligned, "", "movaps 4(%rsi), %xmm0") \
    X(sse_store, "", "movups %xmm1, (%rbx)") \
    X(x87_load, "", "fldl (%rdi)") \
    X(x87_store, "fldz", "fstpl (%rbx)") \
    X(fxsave_ro, "", "fxsave (%rbx)") \
    X(cmpxchg16b, "mov %rbx, %rsi", "lock cmpxchg16b (%rsi)") \
    X(cmpxchg16b_odd, "", "lock cmpxchg16b 8(%rsi)") \
    X(segment_fs, "mov %rdi, %rax; sub %fs:0, %rax", "mov %fs:(%rax), %rcx") \
    X(movnti_ro, "", "movnti %rax, (%rbx)") \
    X(movabs_load, "", "movabs 0x7fffffffe000, %rax") \
    X(address32, "mov $0x1000, %edi", "mov (%edi), %rax")
FAULT_MAIN(CASES)
