// What programs believe the CPU can do; for the suite `portable`.
#include "guest.h"
#include <sys/auxv.h>
#define SHOW(name) say("%s %d", name, !!__builtin_cpu_supports(name))
int main(void) {
    __builtin_cpu_init();
    SHOW("cmpxchg16b"); SHOW("sse4.2"); SHOW("avx"); SHOW("avx2"); SHOW("bmi"); SHOW("bmi2"); SHOW("fma"); SHOW("f16c"); SHOW("lzcnt");
    SHOW("movbe"); SHOW("popcnt"); SHOW("aes"); SHOW("pclmul"); SHOW("x86-64-v3");
    SHOW("avx512f"); SHOW("adx"); SHOW("sha"); SHOW("gfni"); SHOW("vaes"); SHOW("vpclmulqdq"); SHOW("rdrnd"); SHOW("rdseed"); SHOW("rdpid");
    SHOW("xsavec"); SHOW("xsaveopt"); SHOW("clwb"); SHOW("clflushopt"); SHOW("movdiri"); SHOW("serialize"); SHOW("fma4"); SHOW("sse4a");
    // hwcap is what the kernel uses of leaf 1's edx.
    unsigned a = 1, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    CHECK((getauxval(AT_HWCAP) & ~d) == 0);
}
