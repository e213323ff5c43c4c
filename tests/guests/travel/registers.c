// Known values in every register, at the label `place`.
// variants: pie
// cpu: avx
// flags: -O0 -mavx
#include "guest.h"
static unsigned char bytes[16][32] __attribute__((aligned(32)));
static const double numbers[4] = {1.5, -2.25, 1e300, 0.1};

// Loads everything, stands still for an instruction, and gives back rdx.
__attribute__((noinline)) static long fill(void) {
    long result;
    __asm__ volatile(
        "fninit\n fldl 0(%[n])\n fldl 8(%[n])\n fldl 16(%[n])\n fldl 24(%[n])\n fldpi\n fldz\n"
        "vmovdqa 0(%[b]), %%ymm0\n vmovdqa 32(%[b]), %%ymm1\n vmovdqa 64(%[b]), %%ymm2\n"
        "vmovdqa 96(%[b]), %%ymm3\n vmovdqa 128(%[b]), %%ymm4\n vmovdqa 160(%[b]), %%ymm5\n"
        "vmovdqa 192(%[b]), %%ymm6\n vmovdqa 224(%[b]), %%ymm7\n vmovdqa 256(%[b]), %%ymm8\n"
        "vmovdqa 288(%[b]), %%ymm9\n vmovdqa 320(%[b]), %%ymm10\n vmovdqa 352(%[b]), %%ymm11\n"
        "vmovdqa 384(%[b]), %%ymm12\n vmovdqa 416(%[b]), %%ymm13\n vmovdqa 448(%[b]), %%ymm14\n"
        "vmovdqa 480(%[b]), %%ymm15\n"
        "mov $0x1111111111111111, %%rax\n mov $0x2222222222222222, %%rcx\n"
        "mov $0x3333333333333333, %%rdx\n mov $0x4444444444444444, %%rsi\n"
        "mov $0x5555555555555555, %%rdi\n mov $0x6666666666666666, %%r8\n"
        "mov $0x7777777777777777, %%r9\n mov $-8, %%r10\n mov $-9, %%r11\n"
        "cmp $0, %%rax\n stc\n"
        ".globl place\nplace: nop\n"
        "fninit\n mov %%rdx, %[result]\n"
        : [result] "=b"(result)
        : [n] "r"(numbers), [b] "r"(bytes)
        : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0",
          "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
          "xmm12", "xmm13", "xmm14", "xmm15");
    return result;
}

int main(void) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 32; j++) bytes[i][j] = (unsigned char)(i * 16 + j);
    say("%lx", fill());
    return 0;
}
