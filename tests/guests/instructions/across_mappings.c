// Instructions that begin in one mapping of generated code and end in the next, whose protection differs.
// variants: pie static
#include "guest.h"

int main(void) {
    unsigned char *code = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    // mov $number, %eax; ret
    unsigned char number[] = {0xb8, 0, 0, 0, 0, 0xc3};
    for (int before = 1; before < 6; before++) {
        volatile unsigned char *at = code + 4096 - before;
        number[1] = (unsigned char)before;
        CHECK(mprotect(code + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
        for (size_t i = 0; i < sizeof number; i++) at[i] = number[i];
        CHECK(mprotect(code + 4096, 4096, PROT_READ | PROT_EXEC) == 0);
        int (*call)(void) = (int (*)(void))(uintptr_t)at;
        int first = call(), sum = 0;
        for (int i = 0; i < 100; i++) sum += call();
        // The first bytes alone change, then the last ones alone.
        if (before > 1) at[1] = 50;
        int second = call();
        CHECK(mprotect(code + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
        at[4] = 1;
        int third = call();
        say("%d bytes before: %d %d %d %d", before, first, sum, second, third);
    }
    return 0;
}
