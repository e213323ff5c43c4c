// sgdt, sidt, sldt, str, smsw; lsl, lar, verr, verw: the kernel's tables as user mode may see them.
// cpu: umip
// variants: pie static
#include "guest.h"
#define WORD(ins, size) \
    do { \
        uint64_t r = 0x1122334455667788; \
        __asm__ volatile(ins " %" size "0" : "+r"(r)); \
        say(ins " " size " %lx", r); \
    } while (0)
#define MEMORY(ins) \
    do { \
        unsigned char b[16]; \
        memset(b, 0xaa, 16); \
        __asm__ volatile(ins " %0" : "+m"(b)); \
        for (int i = 0; i < 12; i++) p += sprintf(p, "%02x", b[i]); \
        say(ins " %s", text); \
        p = text; \
    } while (0)
int main(void) {
    char text[64], *p = text;
    MEMORY("sgdt"); MEMORY("sidt"); MEMORY("sldt"); MEMORY("str"); MEMORY("smsw");
    WORD("smsw", "w"); WORD("smsw", "k"); WORD("smsw", "q");
    WORD("str", "w"); WORD("str", "k"); WORD("sldt", "w"); WORD("sldt", "k");
    for (unsigned selector = 0; selector < 0x90; selector += 4) {
        // 0x7b holds the number of the processor.
        unsigned with = selector | 3;
        uint64_t limit = 0xfeedfacefeedface, rights = limit, short_limit = limit;
        unsigned char flags[5];
        __asm__ volatile("lsl %k2, %k0; setz %1" : "+r"(limit), "=q"(flags[0]) : "r"(with) : "cc");
        __asm__ volatile("lar %k2, %k0; setz %1" : "+r"(rights), "=q"(flags[1]) : "r"(with) : "cc");
        __asm__ volatile("verr %w1; setz %0" : "=q"(flags[2]) : "r"(with) : "cc");
        __asm__ volatile("verw %w1; setz %0" : "=q"(flags[3]) : "r"(with) : "cc");
        __asm__ volatile("lsl %2, %w0; setz %1" : "+r"(short_limit), "=q"(flags[4]) : "m"(with) : "cc");
        if (with == 0x7b) limit = short_limit = limit < 1 << 20;
        say("%x: %d %lx %d %lx %d %d %d %lx", with, flags[0], limit, flags[1], rights, flags[2], flags[3], flags[4], short_limit);
    }
    // Other flags stay.
    char carry, zero;
    __asm__ volatile("stc; lsl %2, %%eax; setc %0; setz %1" : "=q"(carry), "=q"(zero) : "r"(0x33) : "eax", "cc");
    say("%d %d", carry, zero);
}
