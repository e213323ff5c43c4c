// jrcxz, jecxz, loop, loope, loopne, enter/leave, xlat, string instructions both ways.
#include "guest.h"
static uint64_t loops(uint64_t n) {
    uint64_t sum = 0, flags;
    __asm__ volatile("mov %2, %%rcx\n1: add %%rcx, %0\n loop 1b\n"
                     "mov %2, %%rcx\n cmp %%rcx, %%rcx\n2: inc %0\n cmp %%rcx, %%rcx\n loope 2b\n"
                     "mov %2, %%rcx\n or $1, %%rcx\n3: add $3, %0\n loopne 3b\n"
                     "xor %%ecx, %%ecx\n stc\n jrcxz 4f\n ud2\n4: adc $0, %0\n"
                     "movabs $0x700000000, %%rcx\n jecxz 5f\n ud2\n5: mov $2, %%rcx\n"
                     "6: stc\n .byte 0x67\n loop 6b\n pushf\n pop %1\n"
                     : "+r"(sum), "=&r"(flags) : "r"(n) : "rcx", "cc", "memory");
    CHECK(flags & 1);
    return sum;
}
static uint64_t frames(void) {
    uint64_t a, b;
    __asm__ volatile("mov %%rsp, %%rdx\n sub $256, %%rsp\n push %%rbp\n lea 64(%%rsp), %%rbp\n enter $64, $0\n mov %%rbp, %0\n sub %%rsp, %0\n leave\n"
                     "enter $32, $3\n mov %%rbp, %1\n sub %%rsp, %1\n leave\n pop %%rbp\n mov %%rdx, %%rsp\n"
                     : "=&r"(a), "=&r"(b) : : "rdx", "memory");
    return a * 1000 + b;
}
int main(void) {
    say("loops %lu %lu", loops(1), loops(1000));
    say("frames %lu", frames());
    unsigned char table[256];
    for (int i = 0; i < 256; i++) table[i] = (unsigned char)(i * i + 3);
    unsigned x = 17;
    for (int i = 0; i < 5; i++) __asm__ volatile("xlatb" : "+a"(x) : "b"(table));
    say("xlat %u", x);
    char a[64], b[64];
    for (int i = 0; i < 64; i++) a[i] = (char)('0' + i), b[i] = '.';
    char *s = a + 31, *d = b + 40;
    long n = 16;
    __asm__ volatile("std; rep movsb; cld" : "+S"(s), "+D"(d), "+c"(n) : : "memory");
    say("down %.64s %ld %ld %ld", b, (long)(s - a), (long)(d - b), n);
    s = a, d = b + 25 - 16 + 16, n = 40;
    char *p = a, *q = a + 0;
    n = 64;
    __asm__ volatile("repe cmpsb" : "+S"(p), "+D"(q), "+c"(n) : : "memory", "cc");
    say("cmps %ld %ld", n, (long)(p - a));
    q = a, n = 64;
    __asm__ volatile("repne scasb" : "+D"(q), "+c"(n) : "a"('A') : "memory", "cc");
    say("scas %ld %ld", n, (long)(q - a));
    uint64_t words[8], *w = words;
    n = 8;
    __asm__ volatile("rep stosq" : "+D"(w), "+c"(n) : "a"(0x1122334455667788ul) : "memory");
    say("stos %lx %ld", words[7], (long)(w - words));
    unsigned sum = 0;
    for (s = a; s < a + 64;) {
        unsigned char c;
        __asm__ volatile("lodsb" : "=a"(c), "+S"(s) : : "memory");
        sum = sum * 31 + c;
    }
    say("lods %u", sum);
    // Overlapping forward copy repeats the pattern.
    memcpy(b, "abc", 3);
    s = b, d = b + 3, n = 30;
    __asm__ volatile("rep movsb" : "+S"(s), "+D"(d), "+c"(n) : : "memory");
    say("overlap %.33s", b);
    // The direction flag crosses a call and a return.
    long dir;
    __asm__ volatile("std; call 1f; jmp 2f; 1: ret; 2: pushf; pop %0; cld" : "=r"(dir) : : "memory", "cc");
    say("df %ld", dir >> 10 & 1);
    // 32-bit addresses and counts.
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED && (uintptr_t)low < 1ul << 32);
    uint64_t di = (uint64_t)low, cx = 0xffffffff00000005;
    di |= 0xabc00000000ul; // ignored by the address size
    __asm__ volatile("addr32 rep stosb" : "+D"(di), "+c"(cx) : "a"('z') : "memory");
    say("addr32 %.8s %lx", low, cx);
}
