// Flags that must live across calls, returns, indirect jumps and a long backward branch,
// without libc. Exit status 0 when all of them did.
// variants: bare bare-pie
    .globl _start
_start:
    xor %ebx, %ebx
    mov $200000, %r12d
    xor %r13d, %r13d
    stc
1:  adc $0, %r13            # CF from the round before
    call keep
    rcl $1, %r14            # and through the call
    jc 2f
2:  lea target(%rip), %rax
    stc
    jmp *%rax
    ud2
target:
    jnc fail
    std
    lea 3f(%rip), %rax
    push %rax
    clc
    ret
3:  jc fail
    cld
    mov $0x7fffffff, %eax
    inc %eax                # OF
    jmp 4f
    .skip 200, 0x90
4:  jno fail
    stc
    lea -1(%r12), %r12
    mov %r12, %rcx
    jrcxz 5f
    jmp 1b
5:  cmp $200000, %r13
    jne fail
    mov $1, %eax
    mov $1, %edi
    lea ok(%rip), %rsi
    mov $3, %edx
    syscall
    xor %edi, %edi
    jmp 6f
fail:
    mov $1, %edi
6:  mov $60, %eax
    syscall
keep:
    jrcxz 7f
    lea 1(%rbx), %rbx
7:  ret
    .section .rodata
ok: .ascii "ok\n"
    .section .note.GNU-stack,"",@progbits
