// No libc, no interpreter: system calls alone. Checks argc on the initial stack.
// variants: bare
// args: x y
// status: exit 7
    .globl _start
_start:
    cmpq $3, (%rsp)
    jne 9f
    mov $1, %eax
    mov $1, %edi
    lea message(%rip), %rsi
    mov $length, %edx
    syscall
    cmp $length, %rax
    jne 9f
    mov $231, %eax
    mov $7, %edi
    syscall
9:  mov $60, %eax
    mov $1, %edi
    syscall
    .section .rodata
message: .ascii "bare\n"
    .set length, . - message
    .section .note.GNU-stack,"",@progbits
