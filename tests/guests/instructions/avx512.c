// AVX-512 where the processor has it: masks, 32 registers, and state kept over system calls.
// flags: -mavx512f -mavx512bw -mavx512vl -mavx512dq
// cpu: avx512f avx512bw avx512vl avx512dq
#include "guest.h"
#include <immintrin.h>
int main(void) {
    uint64_t s = 7, in[8], out[8], h = 0;
    for (int i = 0; i < 1000; i++) {
        for (int j = 0; j < 8; j++) in[j] = next_random(&s);
        __m512i v = _mm512_loadu_si512(in);
        __mmask16 k = (__mmask16)next_random(&s);
        v = _mm512_mask_mullo_epi32(v, k, v, _mm512_set1_epi32(2654435761));
        v = _mm512_rorv_epi64(v, _mm512_set1_epi64(i & 63));
        v = _mm512_mask_compress_epi64(v, (__mmask8)k, v);
        _mm512_storeu_si512(out, v);
        for (int j = 0; j < 8; j++) h = h * 31 + out[j];
    }
    say("%016lx", h);
    __asm__ volatile("vmovdqu64 %1, %%zmm31; kmovq %2, %%k5; mov $39, %%eax; syscall; kmovq %%k5, %%rdx; vmovdqu64 %%zmm31, %0"
                     : "=m"(out) : "m"(in), "r"(0x123456789abcdeful) : "rax", "rcx", "rdx", "r11", "xmm31", "memory");
    say("kept %d", !memcmp(in, out, 64));
}
