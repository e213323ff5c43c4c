// A bare image linked far above 4 GiB: its code and its data need 64-bit addresses.
// variants: bare
// flags: -Wl,-Ttext-segment=0x5500000000 -Wl,-z,noexecstack
    .globl _start
_start:
    lea value(%rip), %rbx
    mov $10, %ecx
1:  addq $3, (%rbx)
    loop 1b
    cmpq $30, value(%rip)
    jne 9f
    movabs $table, %rdx
    jmp *8(%rdx)
bad: jmp 9f
good:
    movabs $message, %rsi
    mov $1, %eax
    mov $1, %edi
    mov $5, %edx
    syscall
    xor %edi, %edi
    mov $60, %eax
    syscall
9:  mov $1, %edi
    mov $60, %eax
    syscall
    .data
value: .quad 0
table: .quad bad, good
message: .ascii "high\n"
