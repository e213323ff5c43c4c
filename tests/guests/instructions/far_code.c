// Generated code at high and low addresses with RIP-relative data, and calls between them.
#include "guest.h"
static void *place(uint64_t where) {
    void *p = mmap((void *)where, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    // Somewhere else if that place is taken.
    if (p == MAP_FAILED) p = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
int main(void) {
    uint64_t places[] = {0x7e1234560000, 0x123456780000, 0x200000000000, 0x90000000, 0x180000000};
    for (int i = 0; i < 5; i++) {
        unsigned char *p = place(places[i]);
        // mov 0xff9(%rip),%rax (at +0x1000); lea 0(%rip),%rdx; add %rdi,%rax; incq 0xfe8(%rip); ret
        memcpy(p, "\x48\x8b\x05\xf9\x0f\0\0" "\x48\x8d\x15\0\0\0\0" "\x48\x01\xf8" "\x48\xff\x05\xe8\x0f\0\0" "\xc3", 25);
        *(uint64_t *)(p + 0x1000) = 1000 * i;
        uint64_t a = 0, d = 0;
        for (int k = 0; k < 3; k++)
            __asm__ volatile("sub $128, %%rsp; call *%2; add $128, %%rsp" : "=a"(a), "=d"(d) : "r"(p), "D"(5ul) : "rcx", "cc", "memory");
        CHECK(d == (uint64_t)p + 14);
        places[i] = (uint64_t)p;
        say("%d: %lu %lu", i, a, *(uint64_t *)(p + 0x1000));
    }
    // jmp *mem, call *mem, push mem with RIP-relative operands, far away.
    unsigned char *p = (unsigned char *)places[0] + 256;
    memcpy(p, "\xff\x35\xfa\0\0\0" "\x58" "\xff\x15\xfb\0\0\0" "\xff\x25\xfd\0\0\0", 19);
    *(uint64_t *)(p + 0x100) = 77;
    *(uint64_t *)(p + 0x108) = (uint64_t)p + 64;
    *(uint64_t *)(p + 0x110) = (uint64_t)p + 80;
    memcpy(p + 64, "\x48\x83\xc0\x05\xc3", 5);
    memcpy(p + 80, "\x48\x01\xc0\xc3", 4);
    long r;
    __asm__ volatile("sub $128, %%rsp; call *%1; add $128, %%rsp" : "=a"(r) : "r"(p) : "rdx", "rcx", "cc", "memory");
    say("chain %ld", r);
    // Branches across the 2 GiB line between two neighbouring pages.
    unsigned char *q = mmap((void *)0x7ffff000, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (q == (void *)0x7ffff000) {
        memset(q, 0x90, 8192);
        memcpy(q, "\x31\xc0", 2);
        memcpy(q + 8000, "\xb8\x09\0\0\0\xc3", 6);
        r = ((int (*)(void))q)();
    } else
        r = 9;
    say("line %ld", r);
}
