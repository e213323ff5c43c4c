// Code that changes itself: immediates, opcodes, the next instruction, and a patch from
// a function on the same page as its own data.
#include "guest.h"
static unsigned char *page;
int main(void) {
    page = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    // mov eax, imm; ret — the immediate rewritten many times
    memcpy(page, "\xb8\0\0\0\0\xc3", 6);
    int (*f)(void) = (int (*)(void))page;
    long sum = 0;
    for (int i = 0; i < 3000; i++) {
        memcpy(page + 1, &i, 4);
        int r = f();
        CHECK(r == i);
        sum += r;
    }
    say("immediate %ld", sum);
    // Alternating opcodes: inc edi / dec edi
    memcpy(page + 64, "\xff\xc7\x89\xf8\xc3", 5);
    int (*g)(int) = (int (*)(int))(page + 64);
    int x = 0;
    for (int i = 0; i < 1000; i++) {
        page[65] = i % 3 ? 0xc7 : 0xcf;
        x = g(x);
    }
    say("opcode %d", x);
    // Code that patches the instruction right after the store: movb $imm, 1f+1(%rip); 1: mov $0, %al
    memcpy(page + 128, "\x31\xc0\xc6\x05\x01\0\0\0\x2a\xb0\0\xc3", 12);
    say("next instruction %d", ((int (*)(void))(page + 128))());
    say("next instruction %d", ((int (*)(void))(page + 128))());
    // A counter on the code's own page, incremented by the code: incl 0x40(%rip); mov eax; ret
    memcpy(page + 256, "\xff\x05\x3a\0\0\0\x8b\x05\x34\0\0\0\xc3", 13);
    int (*h)(void) = (int (*)(void))(page + 256), last = 0;
    for (int i = 0; i < 5000; i++) last = h();
    say("counter on the page %d", last);
    // A loop that rewrites its own body while it runs, ending when the count says so.
    // 1: addl $1, %eax; incb (imm of add); dec ecx; jnz 1b; ret
    memcpy(page + 512, "\x31\xc0\xb9\x0a\0\0\0\x83\xc0\x01\xfe\x05\xf9\xff\xff\xff\xff\xc9\x75\xf3\xc3", 21);
    page[512 + 12] = 0xf9;
    say("loop %d", ((int (*)(void))(page + 512))());
    // Two functions on two pages that write each other.
    unsigned char *other = page + 4096;
    memcpy(other, "\xb8\x05\0\0\0\xc3", 6);
    for (int i = 0; i < 100; i++) {
        page[1] = i;
        other[1] = f();
        int r = ((int (*)(void))other)();
        CHECK(r == i);
    }
    // memcpy and a system call as writers.
    int fds[2];
    CHECK(pipe(fds) == 0);
    for (int i = 0; i < 50; i++) {
        unsigned char bytes[6] = {0xb8, i, 1, 0, 0, 0xc3};
        CHECK(write(fds[1], bytes, 6) == 6);
        CHECK(read(fds[0], page, 6) == 6);
        CHECK(f() == 256 + i);
    }
    say("written by read()");
    // Same function moved about: overlapping decodings of the same bytes.
    memcpy(page + 1024, "\xb8\xb0\x07\xc3\x00\xc3", 6); // mov eax,0x00c307b0; ret / mov al,7; ret
    int a = ((int (*)(void))(page + 1024))(), b = ((int (*)(void))(page + 1025))() & 255;
    say("overlapping %x %d", a, b);
}
