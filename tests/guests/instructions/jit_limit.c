// Generated code that changes when the kernel allows (nearly) no more mappings: nothing can be write-protected.
// variants: pie
#include "guest.h"
typedef int (*Function)(void);
enum { PAGES = 200, MOST = 70000 };
static void returns(unsigned char *at, int value) {
    memcpy(at, "\xb8\0\0\0\0\xc3", 6);
    memcpy(at + 1, &value, 4);
}
static unsigned char *map(size_t pages, int prot) {
    void *p = mmap(NULL, pages * 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
int main(void) {
    long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    CHECK(file && fscanf(file, "%ld", &limit) == 1 && fclose(file) == 0);
    unsigned char *code = map(PAGES, PROT_READ | PROT_WRITE | PROT_EXEC);
    // Code that is executed, and so protected, before there is a shortage: every page of the first half.
    for (int i = 0; i < PAGES / 2; i++) returns(code + i * 4096, i);
    for (int i = 0; i < PAGES / 2; i++) CHECK(((Function)(code + i * 4096))() == i);
    // Every second page of a large mapping gets another protection: two more mappings each time. Where the limit is
    // out of reach this tests nothing.
    size_t room = limit < MOST ? limit + 2 : 16, at = 1;
    unsigned char *none = map(room, PROT_NONE);
    while (at < room && mprotect(none + at * 4096, 4096, PROT_READ) == 0) at += 2;
    CHECK(limit >= MOST || (at < room && errno == ENOMEM));
    // Some are left, for what a C library does.
    for (int i = 0; i < 6; i++) CHECK(munmap(none + (at - 4 - 4 * i) * 4096, 4096 * 3) == 0);
    for (int round = 0; round < 3; round++) {
        // Parted pages first: they need mappings of their own.
        for (int i = round; i < PAGES; i += 2) {
            returns(code + i * 4096, 1000 * round + i);
            CHECK(((Function)(code + i * 4096))() == 1000 * round + i);
        }
        for (int i = 0; i < PAGES; i++) {
            returns(code + i * 4096, 2000 * round + i);
            CHECK(((Function)(code + i * 4096))() == 2000 * round + i);
        }
        // And once more without leaving anything behind that was just made.
        for (int i = 0; i < PAGES; i++) CHECK(((Function)(code + i * 4096))() == 2000 * round + i);
        for (int i = PAGES - 1; i >= 0; i--) code[i * 4096 + 1] ^= 1;
        for (int i = 0; i < PAGES; i++) CHECK(((Function)(code + i * 4096))() == ((2000 * round + i) ^ 1));
    }
    // The kernel writes, too.
    int zero = open("/dev/zero", O_RDONLY);
    CHECK(zero >= 0 && read(zero, code, PAGES * 4096) == PAGES * 4096);
    for (int i = 0; i < PAGES; i++) {
        returns(code + i * 4096, i);
        CHECK(((Function)(code + i * 4096))() == i);
    }
    say("changed");
    return 0;
}
