// Instructions and system calls that write to several pages of executed, writable code at once.
// variants: pie static
// cpu: avx
#include <immintrin.h>
#include <sys/uio.h>
#include "guest.h"
enum { PAGES = 6, SIZE = PAGES * 4096 };
typedef int (*Function)(void);
static unsigned char *code;
static volatile sig_atomic_t traps;
static void returns(int page, int value) {
    unsigned char bytes[] = {0xb8, 0, 0, 0, 0, 0xc3};
    memcpy(bytes + 1, &value, 4);
    memcpy(code + page * 4096 + 64, bytes, sizeof bytes);
}
static int value(int page) { return ((Function)(code + page * 4096 + 64))(); }
// Translates code from all pages, so that each is kept from being written.
static void run_all(void) {
    for (int page = 0; page < PAGES; page++) CHECK(value(page) == page);
}
// The same but for the first page: a call that begins to write doesn't fail, it stops short.
static void run_but_first(void) {
    run_all();
    *(volatile unsigned char *)code = 0x90;
}
static unsigned char *border(int page, int before) { return code + page * 4096 - before; }
static void trap(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)info;
    // The handler ends the stepping once the store is behind it.
    if (++traps == 20) ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100;
}
int main(void) {
    code = mmap(NULL, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    for (int page = 0; page < PAGES; page++) returns(page, page);

    run_all();
    *(volatile uint32_t *)border(1, 2) = 0x07b89090;
    *(volatile uint64_t *)border(2, 4) = 0x1122334455667788;
    run_all();
    CHECK(__atomic_add_fetch((uint64_t *)border(2, 4), 1, __ATOMIC_SEQ_CST) == 0x1122334455667789);
    run_all();
    uint64_t expected = 5;
    CHECK(!__atomic_compare_exchange_n((uint64_t *)border(2, 4), &expected, 7, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    CHECK(expected == 0x1122334455667789);
    say("words");

    run_all();
    __asm__ volatile("vpcmpeqd %%xmm0, %%xmm0, %%xmm0\n vinsertf128 $1, %%xmm0, %%ymm0, %%ymm0\n vmovups %%ymm0, (%0)\n vzeroupper"
                     : : "r"(border(3, 16)) : "xmm0", "memory");
    for (int i = 0; i < 32; i++) CHECK(border(3, 16)[i] == 0xff);
    run_all();
    __asm__ volatile("fnsave (%0); frstor (%0)" : : "r"(border(3, 50)) : "memory");
    run_all();
    say("vectors");

    // push, call, enter-like sequences with the stack across a border.
    run_all();
    uint64_t popped;
    __asm__ volatile("mov %%rsp, %%rbx\n mov %1, %%rsp\n push $0x55\n call 1f\n jmp 2f\n1: ret\n2: pop %0\n mov %%rbx, %%rsp"
                     : "=r"(popped) : "r"(border(4, 0) + 4) : "rbx", "memory", "cc");
    CHECK(popped == 0x55);
    run_all();
    say("stack");

    // String instructions over all pages, up and down; only bytes that nobody executes.
    static unsigned char image[SIZE];
    for (int round = 0; round < 2; round++) {
        memcpy(image, code, SIZE);
        run_all();
        void *to = code, *from = image;
        size_t count = SIZE;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
        CHECK(count == 0 && to == code + SIZE);
        run_all();
        to = code + SIZE - 8, from = image + SIZE - 8, count = SIZE / 8;
        __asm__ volatile("std; rep movsq; cld" : "+D"(to), "+S"(from), "+c"(count) : : "memory", "cc");
        CHECK(count == 0);
        run_all();
    }
    void *to = code + 128;
    size_t count = 3968 / 8;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(0x9090909090909090) : "memory");
    CHECK(count == 0);
    run_all();
    say("strings");

    // With the trap flag set.
    on_signal(SIGTRAP, trap, 0);
    run_all();
    __asm__ volatile("sub $128, %%rsp; pushf; orl $0x100, (%%rsp); popf\n"
                     "movq $0x33, (%0)\n"
                     ".rept 24\n nop\n .endr\n add $128, %%rsp"
                     : : "r"(border(5, 4)) : "memory", "cc");
    CHECK(traps == 20);
    run_all();
    say("stepped");

    // System calls: a buffer whose second, third and fourth page is protected.
    int ends[2];
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 65536) >= SIZE);
    *code = 0x90;
    memcpy(image, code, SIZE);
    CHECK(write(ends[1], image, SIZE) == SIZE);
    run_but_first();
    CHECK(read(ends[0], code, SIZE) == SIZE);
    run_all();
    CHECK(memcmp(code, image, SIZE) == 0);
    CHECK(write(ends[1], image, SIZE) == SIZE);
    run_but_first();
    struct iovec parts[] = {{code, 5000}, {code + 5000, 9000}, {code + 14000, SIZE - 14000}};
    CHECK(readv(ends[0], parts, 3) == SIZE);
    run_all();
    int file = memfd_create("image", 0);
    CHECK(file >= 0 && write(file, image, SIZE) == SIZE);
    run_but_first();
    CHECK(pread(file, code, SIZE, 0) == SIZE);
    run_all();
    struct timespec *time = (struct timespec *)border(1, 8), saved = *time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, time) == 0 && time->tv_nsec < 1000000000);
    *time = saved;
    run_all();
    say("system calls");
    return 0;
}
