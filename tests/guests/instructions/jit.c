// A small JIT: functions generated, run, rewritten; W^X flips; code freed and mapped again
// at the same address; more code than fits in any small cache.
#include "guest.h"
static unsigned char *emit_sum(unsigned char *p, int terms, int seed) {
    // xor eax,eax; add eax, imm32 ...; ret
    *p++ = 0x31, *p++ = 0xc0;
    for (int i = 0; i < terms; i++) {
        int v = seed * i + 1;
        *p++ = 0x05;
        memcpy(p, &v, 4);
        p += 4;
    }
    *p++ = 0xc3;
    return p;
}
static int expected(int terms, int seed) {
    int sum = 0;
    for (int i = 0; i < terms; i++) sum += seed * i + 1;
    return sum;
}
int main(void) {
    // W^X flips.
    unsigned char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 300; i++) {
        CHECK(mprotect(p, 65536, PROT_READ | PROT_WRITE) == 0);
        emit_sum(p + (i % 7) * 1000, 20 + i % 90, i);
        CHECK(mprotect(p, 65536, PROT_READ | PROT_EXEC) == 0);
        CHECK(((int (*)(void))(p + (i % 7) * 1000))() == expected(20 + i % 90, i));
    }
    say("flips");
    // Mapped, run, unmapped, again at the same place.
    for (int i = 0; i < 300; i++) {
        unsigned char *q = mmap(p + 65536 * 4, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        emit_sum(q, 30, i);
        CHECK(((int (*)(void))q)() == expected(30, i));
        munmap(q, 4096);
    }
    say("remaps");
    // A dispatch table of many small functions; some rewritten between calls.
    enum { COUNT = 4000, SIZE = 64 };
    unsigned char *many = mmap(NULL, COUNT * SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < COUNT; i++) emit_sum(many + i * SIZE, 5, i);
    uint64_t s = 3;
    long total = 0;
    for (int i = 0; i < 60000; i++) {
        int k = next_random(&s) % COUNT;
        total += ((int (*)(void))(many + k * SIZE))();
        if (i % 40 == 0) emit_sum(many + k * SIZE, 5, k + i);
    }
    say("table %ld", total);
    // A megabyte of straight code, twice.
    unsigned char *big = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    emit_sum(big, 400000, 3);
    CHECK(((int (*)(void))big)() == expected(400000, 3));
    CHECK(((int (*)(void))big)() == expected(400000, 3));
    say("big");
    // Moved by mremap.
    emit_sum(big, 10, 9);
    unsigned char *moved = mremap(big, 8 << 20, 16 << 20, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    CHECK(((int (*)(void))moved)() == expected(10, 9));
    // Discarded by madvise: zeroes, which decode as add %al,(%rax).
    emit_sum(many, 5, 1);
    CHECK(((int (*)(void))many)() == expected(5, 1));
    CHECK(madvise(many, 4096, MADV_DONTNEED) == 0);
    many[8] = 0xc3;
    char target = 5;
    __asm__ volatile("call *%1" : : "a"(&target), "r"(many) : "memory", "cc");
    say("madvise %s", target != 5 ? "ran zeroes" : "stale");
}
