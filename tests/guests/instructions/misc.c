// cmpxchg8b/16b, bit tests on memory, pushf/popf, lahf/sahf, bswap, movbe, xadd, shld, and the
// registers that syscall destroys.
// flags: -mcx16
#include "guest.h"
int main(void) {
    uint64_t pair[2] __attribute__((aligned(16))) = {1, 2};
    uint64_t a = 1, d = 2;
    char ok;
    __asm__ volatile("lock cmpxchg16b %1; setz %0" : "=q"(ok), "+m"(pair), "+a"(a), "+d"(d) : "b"(30ul), "c"(40ul) : "cc", "memory");
    say("cx16 %d %lu %lu", ok, pair[0], pair[1]);
    __asm__ volatile("lock cmpxchg16b %1; setz %0" : "=q"(ok), "+m"(pair), "+a"(a), "+d"(d) : "b"(5ul), "c"(6ul) : "cc", "memory");
    say("cx16 %d %lu %lu", ok, a, d);
    uint64_t bits[64] = {0};
    for (long i = -500; i < 1500; i += 37) __asm__ volatile("btsq %1, %0" : "+m"(bits[32]) : "r"(i) : "cc", "memory");
    uint64_t h = 0;
    for (int i = 0; i < 64; i++) h = h * 31 + bits[i];
    say("bts %lx", h);
    int set = 0;
    for (long i = -500; i < 1500; i++) {
        char c;
        __asm__ volatile("lock btcq %2, %1; setc %0" : "=q"(c), "+m"(bits[32]) : "r"(i) : "cc", "memory");
        set += c;
    }
    say("btc %d", set);
    uint64_t flags;
    for (unsigned f = 0; f < 256; f += 51) {
        unsigned char ah;
        __asm__ volatile("sub $128, %%rsp; movb %%cl, %%ah; sahf; lahf; movb %%ah, %%cl; pushf; pop %1; add $128, %%rsp" : "=c"(ah), "=d"(flags) : "0"((unsigned char)f) : "rax", "cc", "memory");
        say("sahf %x %x %lx", f, ah, flags & 0xd5);
    }
    // popf may set ID, DF, AC... and keeps IOPL and IF as they are.
    __asm__ volatile("sub $128, %%rsp; pushf; mov (%%rsp), %%rax; xor $0x200000, %%rax; push %%rax; popf; pushf; pop %0; xor %%rax, %0; popf; add $128, %%rsp" : "=d"(flags) : : "rax", "cc", "memory");
    say("id %lx", flags);
    __asm__ volatile("sub $128, %%rsp; pushf; mov (%%rsp), %%rax; push %%rax; xorq $0x3200, (%%rsp); popf; pushf; pop %0; popf; xor %%rax, %0; add $128, %%rsp" : "=d"(flags) : : "rax", "cc", "memory");
    say("iopl %lx", flags);
    // popfw: 16 bits.
    __asm__ volatile("sub $128, %%rsp; stc; pushfw; popfw; setc %%al; movzbl %%al, %%eax; add $128, %%rsp" : "=a"(flags) : : "cc", "memory");
    say("popfw %lx", flags);
    uint64_t x = 0x0123456789abcdef, y = 0xfedcba9876543210;
    __asm__("shld $13, %1, %0" : "+r"(x) : "r"(y) : "cc");
    __asm__("shrd %%cl, %1, %0" : "+r"(y) : "r"(x), "c"(77) : "cc");
    say("shld %lx %lx", x, y);
    __asm__("bswap %0" : "+r"(x));
    say("bswap %lx", x);
    __asm__("imul $-7, %1, %0" : "=r"(y) : "r"(x) : "cc");
    say("imul %lx", y);
    __asm__("mul %2" : "=a"(a), "=d"(d) : "r"(y), "a"(x) : "cc");
    say("mul %lx %lx", a, d);
    __asm__("div %2" : "+a"(a), "+d"(d) : "r"(y) : "cc");
    say("div %lx %lx", a, d);
    // High-byte registers, 8- and 16-bit partial writes.
    uint64_t part = 0x1111111111111111;
    __asm__("mov $0xab, %%ah; mov $0xcd, %%al; add %%ah, %%al; xchg %%al, %%ah; movw $0x77, %%bx; movsbw %%ah, %%dx" : "+a"(part) : : "rbx", "rdx", "cc");
    say("partial %lx", part);
    __asm__("cwde" : "+a"(part));
    say("cwde %lx", part);
    // syscall leaves the return address in rcx and the flags in r11, all else untouched.
    uint64_t rcx, r11, r10 = 10, r8 = 8, r9 = 9, ret = SYS_getppid, here;
    register uint64_t r10_ __asm__("r10") = r10, r8_ __asm__("r8") = r8, r9_ __asm__("r9") = r9, r11_ __asm__("r11");
    __asm__ volatile("stc\n syscall\n1: lea 1b(%%rip), %2" : "+a"(ret), "=c"(rcx), "=&d"(here), "+r"(r10_), "+r"(r8_), "+r"(r9_), "=r"(r11_) : : "memory", "cc");
    r11 = r11_;
    CHECK(rcx == here && (r11 & 1) && r10_ == 10 && r8_ == 8 && r9_ == 9);
    CHECK(ret == (uint64_t)getppid());
    // A system call that doesn't exist.
    errno = 0;
    say("nosys %ld %d", syscall(100000), errno);
    say("done");
}
