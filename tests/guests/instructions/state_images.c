// xsave, xsavec, xsaveopt, fxsave, fnsave, fnstenv: which bytes they write, what is in them, what restoring brings back.
// flags: -mavx2 -mxsave
// cpu: avx2 xsave xsavec xsaveopt
// variants: pie static
#include "guest.h"
typedef unsigned char byte;
static byte area[1024] __attribute__((aligned(64)));
static byte image[1024] __attribute__((aligned(64)));

// Fills all vector registers and three x87 registers with known values.
static void fill(uint64_t seed) {
    uint64_t v[4] = {seed, ~seed, seed * 3, seed * 5};
    __asm__ volatile(
        "fninit; fldz; fld1; fldpi\n"
        "vmovdqu %0, %%ymm0; vpaddq %%ymm0, %%ymm0, %%ymm1; vpaddq %%ymm1, %%ymm0, %%ymm2; vpaddq %%ymm2, %%ymm0, %%ymm3\n"
        "vpaddq %%ymm3, %%ymm0, %%ymm4; vpaddq %%ymm4, %%ymm0, %%ymm5; vpaddq %%ymm5, %%ymm0, %%ymm6; vpaddq %%ymm6, %%ymm0, %%ymm7\n"
        "vpaddq %%ymm7, %%ymm0, %%ymm8; vpaddq %%ymm8, %%ymm0, %%ymm9; vpaddq %%ymm9, %%ymm0, %%ymm10; vpaddq %%ymm10, %%ymm0, %%ymm11\n"
        "vpaddq %%ymm11, %%ymm0, %%ymm12; vpaddq %%ymm12, %%ymm0, %%ymm13; vpaddq %%ymm13, %%ymm0, %%ymm14; vpaddq %%ymm14, %%ymm0, %%ymm15\n"
        : : "m"(v) : "memory");
}
enum kind { XSAVE, XSAVE64, XSAVEC, XSAVEC64, XSAVEOPT, FXSAVE, FXSAVE64 };
static const char *const names[] = {"xsave", "xsave64", "xsavec", "xsavec64", "xsaveopt", "fxsave", "fxsave64"};
#define FILLED(ins) \
    do { \
        uint64_t v[4] = {seed, ~seed, seed * 3, seed * 5}; \
        (void)v; \
        fill(seed); \
        __asm__ volatile(ins " %0" : "+m"(area) : "a"(mask), "d"(high)); \
    } while (0)
static void save(enum kind kind, uint64_t seed, unsigned mask, unsigned high) {
    switch (kind) {
    case XSAVE: FILLED("xsave"); break;
    case XSAVE64: FILLED("xsave64"); break;
    case XSAVEC: FILLED("xsavec"); break;
    case XSAVEC64: FILLED("xsavec64"); break;
    case XSAVEOPT: FILLED("xsaveopt"); break;
    case FXSAVE: FILLED("fxsave"); break;
    case FXSAVE64: FILLED("fxsave64"); break;
    }
}
static uint64_t sum(const byte *from, int start, int end) {
    uint64_t h = 14695981039346656037u;
    for (int i = start; i < end; i++) h = (h ^ from[i]) * 1099511628211u;
    return h;
}
// The addresses of the last x87 instruction are nobody's business.
static void forget_pointers(void) { memset(area + 6, 0, 18); }

static void written(enum kind kind, unsigned mask, unsigned high) {
    byte touched[1024] = {0};
    for (int round = 0; round < 2; round++) {
        memset(area, round ? 0x5a : 0xa5, sizeof area);
        memset(area + 512, 0, 64);
        save(kind, 0x0123456789abcdef, mask, high);
        for (int i = 0; i < 1024; i++) touched[i] |= area[i] == (round ? 0x5a : 0xa5) ? 1 << round : 0;
    }
    char text[256], *p = text;
    int start = -1;
    for (int i = 0; i <= 1024; i++) {
        int mine = i < 1024 && !(i >= 512 && i < 576) && touched[i] != 3;
        if (mine && start < 0) start = i;
        if (!mine && start >= 0) p += sprintf(p, " %d-%d", start, i), start = -1;
    }
    *p = 0;
    say("%s %x:%x writes%s", names[kind], high, mask, text);
    uint64_t header[8];
    memcpy(header, area + 512, 64);
    say("header %lx %lx %lx", header[0], header[1], header[2] | header[3] | header[4] | header[5] | header[6] | header[7]);
    forget_pointers();
    // Which bits of MXCSR exist is the CPU's matter.
    memset(area + 28, 0, 4);
    say("contents %lx", sum(area, 0, 512) ^ sum(area, 576, 1024));
}

static uint64_t vectors(void) {
    byte all[512];
    __asm__ volatile("vmovdqu %%ymm0, (%0); vmovdqu %%ymm5, 32(%0); vmovdqu %%ymm9, 64(%0); vmovdqu %%ymm15, 96(%0)" : : "r"(all) : "memory");
    return sum(all, 0, 128);
}
// Saves, ruins everything, restores.
static void round_trip(enum kind kind, unsigned mask) {
    memset(area, 0, sizeof area);
    save(kind, 0xfedcba9876543210, mask, 0);
    uint64_t before, after;
    fill(0xfedcba9876543210);
    before = vectors();
    fill(77);
    long double top;
    if (kind == FXSAVE) __asm__ volatile("fxrstor %0" : : "m"(area));
    else if (kind == FXSAVE64) __asm__ volatile("fxrstor64 %0" : : "m"(area));
    else if (kind == XSAVE || kind == XSAVEC || kind == XSAVEOPT) __asm__ volatile("xrstor %0" : : "m"(area), "a"(mask), "d"(0));
    else __asm__ volatile("xrstor64 %0" : : "m"(area), "a"(mask), "d"(0));
    after = vectors();
    unsigned short status;
    __asm__ volatile("fnstsw %0" : "=a"(status));
    __asm__ volatile("fstp %%st(0); fstp %%st(0); fstpt %0" : "=m"(top));
    say("%s %x: %d %lx %x %Lg", names[kind], mask, before == after, after, status, top);
}

static void environments(void) {
    for (int form = 0; form < 4; form++) {
        memset(image, 0xa5, sizeof image);
        unsigned short control = 0x340, after = 0, status = 0;
        __asm__ volatile("fninit; fldcw %0; fldz; fld1; fldpi; fld1" : : "m"(control));
        switch (form) {
        case 0: __asm__ volatile("fnstenv %0" : "+m"(image)); break;
        case 1: __asm__ volatile(".byte 0x66; fnstenv %0" : "+m"(image)); break;
        case 2: __asm__ volatile("fnsave %0" : "+m"(image)); break;
        case 3: __asm__ volatile(".byte 0x66; fnsave %0" : "+m"(image)); break;
        }
        __asm__ volatile("fnstcw %0; fnstsw %1" : "=m"(after), "=m"(status));
        if (form & 1) memset(image + 6, 0, 8);
        else memset(image + 12, 0, 14);
        say("environment %d: %lx, then %x %x", form, sum(image, 0, 200), after, status);
        switch (form) {
        case 0: __asm__ volatile("fldenv %0" : : "m"(image)); break;
        case 1: __asm__ volatile(".byte 0x66; fldenv %0" : : "m"(image)); break;
        case 2: __asm__ volatile("frstor %0" : : "m"(image)); break;
        case 3: __asm__ volatile(".byte 0x66; frstor %0" : : "m"(image)); break;
        }
        __asm__ volatile("fnstcw %0; fnstsw %1" : "=m"(after), "=m"(status));
        long double sums;
        __asm__ volatile("fninit; fld1; fldpi; faddp; fstpt %0" : "=m"(sums));
        say("restored %x %x %Lg", after, status, sums);
    }
    // An exception that is pending: stored, and masked by storing.
    unsigned short control = 0x37b, status, after;
    __asm__ volatile("fninit; fldcw %3; fld1; fldz; fdivrp %%st, %%st(1); fnstenv %0; fnstsw %1; fnstcw %2; fninit" : "=m"(image), "=m"(status), "=m"(after) : "m"(control));
    say("pending %x %x %x %x", image[0] | image[1] << 8, image[4] | image[5] << 8, status, after);
}

int main(void) {
    for (enum kind kind = XSAVE; kind <= XSAVEC64; kind++)
        for (unsigned mask = 0; mask < 8; mask++) written(kind, mask, 0);
    // What isn't there isn't saved.
    written(FXSAVE, 0, 0);
    written(FXSAVE64, 7, 0);
    for (enum kind kind = XSAVE; kind <= FXSAVE64; kind++) round_trip(kind, 7);
    round_trip(XSAVE, 3), round_trip(XSAVEC, 3), round_trip(XSAVEC64, 5);
    // Only asked components change in the header of xsave; the rest is kept.
    memset(area, 0, sizeof area);
    area[512] = 4;
    save(XSAVE, 1, 1, 0);
    say("kept %x", area[512]);
    environments();
    // Addressing: an index, rip-relative, far from the register.
    memset(image, 0, sizeof image), memset(area, 0, sizeof area);
    fill(99);
    __asm__ volatile("xsavec64 -0x1000(%0,%1,8)" : : "r"(image), "r"(0x200L), "a"(7), "d"(0) : "memory");
    fill(99);
    __asm__ volatile("xsavec64 area(%%rip)" : : "a"(7), "d"(0) : "memory");
    memset(image + 6, 0, 18), forget_pointers();
    CHECK(!memcmp(image, area, 832));
    say("ok");
}
