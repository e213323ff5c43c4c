// Instructions that begin in a file's code and end on its next page, which the program has patched, as tools do that put
// hooks into a library's functions.
// variants: pie static
#include "guest.h"

int main(void) {
    // Called at its beginning, or from a page earlier: nops lead there.
    unsigned char page[3 * 4096];
    char name[] = "/tmp/guest-patched-XXXXXX";
    for (int before = 1; before < 5; before++) {
        memset(page, 0x90, sizeof page);
        // mov $number, %eax; ret
        unsigned char number[] = {0xb8, 7, 0, 0, 0, 0xc3};
        memcpy(page + 4096 - before, number, sizeof number);
        strcpy(name, "/tmp/guest-patched-XXXXXX");
        int fd = mkstemp(name);
        CHECK(fd >= 0);
        CHECK(unlink(name) == 0);
        CHECK(write(fd, page, sizeof page) == sizeof page);
        unsigned char *code = mmap(NULL, sizeof page, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
        CHECK(code != MAP_FAILED);
        int (*there)(void) = (int (*)(void))(uintptr_t)(code + 4096 - before);
        int (*ahead)(void) = (int (*)(void))(uintptr_t)(code + 4096 - 64);
        int whole = there() + ahead(), sum = 0;
        // The last byte of the number is always on the next page.
        volatile unsigned char *last = code + 4096 - before + 4;
        for (int patch = 1; patch < 4; patch++) {
            CHECK(mprotect(code + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
            *last = (unsigned char)patch;
            sum += there() + ahead();
            *last = (unsigned char)(patch + 10);
            sum += there() + ahead();
            CHECK(mprotect(code + 4096, 4096, PROT_READ | PROT_EXEC) == 0);
            for (int i = 0; i < 50; i++) sum += (there() >> 24) + (ahead() >> 24);
        }
        say("%d bytes before: %d %d", before, whole, sum);
        CHECK(munmap(code, sizeof page) == 0);
        CHECK(close(fd) == 0);
    }
    return 0;
}
