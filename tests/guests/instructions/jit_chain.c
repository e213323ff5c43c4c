// Code in shared memory beside other code: it calls functions that have dispatch stubs, private code jumps
// into it and through it, and mappings of the other kind take its place.
#include "guest.h"
typedef int (*Function)(void);
__attribute__((noinline, aligned(65536))) static int one(void) { __asm__ volatile(""); return 1; }
__attribute__((noinline, aligned(65536))) static int two(void) { __asm__ volatile(""); return 2; }
static int fd;
static unsigned char *map(void *at, int prot, int flags) {
    void *p = mmap(at, 4096, prot, flags | (at ? MAP_FIXED : 0), flags & MAP_ANONYMOUS ? -1 : fd, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
static void returns(unsigned char *at, int value) {
    memcpy(at, "\xb8\0\0\0\0\xc3", 6);
    memcpy(at + 1, &value, 4);
}
int main(void) {
    fd = memfd_create("code", 0);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    int rwx = PROT_READ | PROT_WRITE | PROT_EXEC;
    // Two pages side by side: private code, then a view of the shared page; both below 4 GiB of distance.
    unsigned char *both = mmap(NULL, 8192, rwx, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(both != MAP_FAILED);
    unsigned char *x = map(both + 4096, PROT_READ | PROT_EXEC, MAP_SHARED);
    unsigned char *w = map(NULL, PROT_READ | PROT_WRITE, MAP_SHARED);

    Function volatile f = one, g = two;
    int sum = f();                                              // one has a stub
    memcpy(w, "\x48\x83\xec\x08\xff\xd7\x48\x83\xc4\x08\xc3", 11); // sub rsp, 8; call rdi; add rsp, 8; ret
    for (int i = 0; i < 3; i++) sum += ((int (*)(Function))x)(f);
    sum += g(); // the same low 16 bits as one
    for (int i = 0; i < 3; i++) sum += ((int (*)(Function))x)(g) + f();
    say("calls %d", sum);

    // A direct jump and a direct call from private code into the shared page, which changes.
    both[0] = 0xe9;
    memcpy(both + 1, &(int){4096 - 5}, 4);
    memcpy(both + 16, "\x48\x83\xec\x08\xe8\0\0\0\0\x48\x83\xc4\x08\xc3", 14);
    memcpy(both + 21, &(int){4096 - 25}, 4);
    // Private code that runs on into the shared page.
    memset(both + 4080, 0x90, 16);
    for (int i = 0; i < 100; i++) {
        returns(w, i);
        CHECK(((Function)both)() == i);
        returns(w, i + 1);
        CHECK(((Function)(both + 16))() == i + 1);
        returns(w, i + 2);
        CHECK(((Function)(both + 4080))() == i + 2);
        returns(w, i + 3);
        CHECK(((Function)x)() == i + 3);
    }
    say("jumps");

    // Shared, private and shared again at one address, with the same bytes and with others.
    for (int i = 0; i < 20; i++) {
        map(x, rwx, MAP_PRIVATE | MAP_ANONYMOUS);
        returns(x, i);
        CHECK(((Function)both)() == i && ((Function)x)() == i);
        returns(x, i + 1);
        CHECK(((Function)both)() == i + 1 && ((Function)x)() == i + 1);
        returns(w, i + 1);
        map(x, PROT_READ | PROT_EXEC, MAP_SHARED);
        CHECK(((Function)both)() == i + 1 && ((Function)x)() == i + 1);
        returns(w, i + 2);
        CHECK(((Function)x)() == i + 2 && ((Function)both)() == i + 2 && ((Function)(both + 16))() == i + 2);
    }
    say("remapped");
    return 0;
}
