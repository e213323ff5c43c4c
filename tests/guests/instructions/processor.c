// rdtsc, rdtscp, cpuid, rdrand, rdseed, rdpid, xgetbv: sane and consistent.
// flags: -mrdrnd -mrdseed -mxsave
// cpu: rdrand rdseed rdpid xsave rdtscp
// variants: pie static musl
#include "guest.h"
#include <cpuid.h>
#include <immintrin.h>
#include <sched.h>
int main(void) {
    uint64_t last = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t now = __builtin_ia32_rdtsc();
        CHECK(now >= last);
        last = now;
    }
    unsigned aux;
    CHECK(__builtin_ia32_rdtscp(&aux) >= last);
    unsigned a, b, c, d;
    CHECK(__get_cpuid(0, &a, &b, &c, &d));
    char vendor[13] = {0};
    memcpy(vendor, &b, 4), memcpy(vendor + 4, &d, 4), memcpy(vendor + 8, &c, 4);
    say("%s %u", vendor, a);
    CHECK(__get_cpuid(1, &a, &b, &c, &d));
    say("%x %x %x", a, c & ~(1 << 27), d);
    CHECK(__get_cpuid_count(7, 0, &a, &b, &c, &d));
    say("7: %u", a);
    // The upper halves of the four registers are cleared.
    uint64_t ra = ~0ul, rb, rc = ~0ul, rd;
    ra = 0, rc = 0;
    __asm__ volatile("movabs $0x123456789abcdef0, %%rbx; mov %%rbx, %%rdx; cpuid" : "+a"(ra), "=b"(rb), "+c"(rc), "=d"(rd));
    CHECK(ra >> 32 == 0 && rb >> 32 == 0 && rc >> 32 == 0 && rd >> 32 == 0);
    for (int i = 0; i < 64; i++) __get_cpuid_count(4, i % 4, &a, &b, &c, &d);
    // Flags survive cpuid and rdtsc.
    char kept;
    __asm__ volatile("xor %%eax, %%eax; xor %%ecx, %%ecx; stc; cpuid; rdtsc; setc %0" : "=q"(kept) : : "rax", "rbx", "rcx", "rdx", "cc");
    CHECK(kept);
    unsigned long long x = 0, y = 0;
    int tries = 0;
    while (!_rdrand64_step(&x)) CHECK(tries++ < 1000);
    while (!_rdrand64_step(&y)) CHECK(tries++ < 1000);
    CHECK(x != y);
    unsigned short w;
    while (!_rdrand16_step(&w)) CHECK(tries++ < 1000);
    unsigned z;
    for (tries = 0; !_rdseed32_step(&z); tries++) CHECK(tries < 1000000);
    unsigned long pid;
    __asm__ volatile("rdpid %0" : "=r"(pid));
    CHECK((pid & 0xfff) < 1024);
    uint64_t xcr = _xgetbv(0);
    CHECK((xcr & 3) == 3);
    // State beyond AVX may be hidden, if cpuid hides it too.
    say("xcr %lx", xcr & 7);
    __asm__ volatile("pause; lfence; sfence; mfence; prefetcht0 (%0); clflush (%0); nopl (%0)" : : "r"(&x) : "memory");
    say("ok");
}
