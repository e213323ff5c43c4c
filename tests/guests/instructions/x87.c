// x87: arithmetic, transcendental functions, stack, control and status words, 80-bit values.
// flags: -lm
#include "guest.h"
#include <math.h>
static void show(const char *what, long double v) {
    unsigned char b[16] = {0};
    memcpy(b, &v, 10);
    char text[64], *p = text;
    for (int i = 9; i >= 0; i--) p += sprintf(p, "%02x", b[i]);
    say("%s %s", what, text);
}
static volatile long double two = 2, third = 1.0L / 3, big = 1e4000L;
int main(void) {
    long double x;
    show("sqrt", sqrtl(two)); show("third", third); show("overflow", big * big); show("sum", third + two);
    __asm__("fldpi" : "=t"(x)); show("pi", x);
    __asm__("fsin" : "=t"(x) : "0"(third)); show("sin", x);
    __asm__("fcos" : "=t"(x) : "0"(third)); show("cos", x);
    __asm__("f2xm1" : "=t"(x) : "0"(third)); show("f2xm1", x);
    __asm__("fyl2x" : "=t"(x) : "0"(two), "u"(third) : "st(1)"); show("fyl2x", x);
    __asm__("fpatan" : "=t"(x) : "0"(two), "u"(third) : "st(1)"); show("fpatan", x);
    __asm__("fprem" : "=t"(x) : "0"(big), "u"(third)); show("fprem", x);
    __asm__("fscale" : "=t"(x) : "0"(third), "u"(two)); show("fscale", x);
    unsigned short cw, status;
    __asm__("fnstcw %0" : "=m"(cw));
    say("cw %x", cw);
    for (int rounding = 0; rounding < 4; rounding++)
        for (int precision = 0; precision < 4; precision += 2) {
            unsigned short changed = (cw & ~0xf00) | rounding << 10 | precision << 8;
            long n;
            __asm__ volatile("fldcw %1; fld1; fldpi; fdivrp; fistpll %0; fldcw %2" : "=m"(n) : "m"(changed), "m"(cw));
            __asm__ volatile("fldcw %1; fldt %3; fldpi; fmulp; fldcw %2" : "=t"(x) : "m"(changed), "m"(cw), "m"(*(long double *)&third));
            say("rounding %d precision %d: %ld", rounding, precision, n);
            show("product", x);
        }
    __asm__ volatile("fnclex; fldz; fld1; fdivp; fstp %%st(0); fnstsw %0" : "=a"(status));
    say("status %x", status & 0x7f);
    __asm__ volatile("fninit; fld1; fld1; fldpi; fincstp; fdecstp; fxch %%st(2); fcompp; fnstsw %0; fstp %%st(0)" : "=a"(status));
    say("compare %x", status & 0x7f00);
    // Flags straight from a comparison, and conditional moves.
    char below;
    __asm__("fcomi %%st(1), %%st; setb %0" : "=q"(below) : "t"(third), "u"(two) : "cc");
    say("fcomi %d", below);
    // The environment and whole state: save, ruin, restore.
    char state[108], env[28];
    __asm__ volatile("fldpi; fldl2e; fnsave %0; fld1; fld1; frstor %0; fnstenv %1; faddp" : "=m"(state), "=m"(env), "=t"(x)); 
    show("restored", x);
    unsigned tags;
    memcpy(&tags, env + 8, 4);
    say("tags %x", tags & 0xffff);
    // MMX shares the registers.
    uint64_t m;
    __asm__ volatile("movq %1, %%mm0; paddb %%mm0, %%mm0; movq %%mm0, %0; emms" : "=m"(m) : "m"((uint64_t){0x0102030405060708}));
    say("mmx %lx", m);
    double sum = 0;
    for (int i = 1; i < 2000; i++) sum += (double)(sinl(i) * logl(i));
    say("%.12f %La", sum, powl(third, 1.7L));
}
