// Long random sequences in which flags live across branches, calls, returns and loops:
// run from written memory and from a file mapping, both must give the same hash.
// variants: pie nopie
#include "guest.h"
static unsigned char *at;
static uint64_t seed;
static unsigned pick(unsigned n) { return next_random(&seed) % n; }
static void put(int n, ...) {
    va_list args;
    va_start(args, n);
    while (n--) *at++ = (unsigned char)va_arg(args, int);
    va_end(args);
}
static void put32(uint32_t v) { memcpy(at, &v, 4); at += 4; }
// Registers in use: everything but rsp, rcx (shift counts, loops) and r15 (results).
static int any(void) {
    static const int usable[] = {0, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    return usable[pick(13)];
}
static void op_rr(int opcode, int reg, int rm) { put(3, 0x48 | (reg >> 3 << 2) | rm >> 3, opcode, 0xc0 | (reg & 7) << 3 | (rm & 7)); }
static void op_r(int opcode, int ext, int rm) { put(3, 0x48 | rm >> 3, opcode, 0xc0 | ext << 3 | (rm & 7)); }
static void instruction(int depth);
static void block(int n, int depth) { while (n--) instruction(depth); }
static void forward(int depth) { // jcc over a few instructions
    put(2, 0x70 + pick(16), 0);
    unsigned char *from = at;
    do {
        at = from;
        block(1 + pick(3), depth + 9);
    } while (at - from > 120);
    from[-1] = at - from;
}
static void call(int depth) { // jmp over a leaf, call it
    put(1, 0xe9);
    unsigned char *jump = at;
    put32(0);
    unsigned char *leaf = at;
    block(1 + pick(4), depth + 9);
    if (pick(3)) put(1, 0xc3);
    else put(2, 0xf3, 0xc3);
    uint32_t over = at - leaf;
    memcpy(jump, &over, 4);
    if (pick(2)) {
        put(1, 0xe8);
        put32(leaf - (at + 4));
    } else { // lea leaf(%rip), %rcx; call *%rcx, which leaves the flags alone
        put(3, 0x48, 0x8d, 0x0d);
        put32(leaf - (at + 4));
        put(2, 0xff, 0xd1);
    }
}
static void loop(int depth) { // push count; body; counted without touching flags
    put(1, 0x6a); put(1, 1 + pick(5));
    unsigned char *head = at;
    block(1 + pick(3), depth + 9);
    put(1, 0x59);                         // pop rcx
    put(4, 0x48, 0x8d, 0x49, 0xff);       // lea -1(%rcx), %rcx
    put(1, 0x51);                         // push rcx
    put(2, 0xe3, 5);                      // jrcxz out
    put(1, 0xe9);
    put32(head - (at + 4));
    put(1, 0x59);
}
static void memory(void) { // [r15 + disp8], which points into the result area
    int disp = pick(15) * 8;
    switch (pick(6)) {
    case 0: put(4, 0x49 | (0 << 2), 0x11, 0x47, disp); break;        // adc %rax, m
    case 1: put(4, 0x49, 0x13, 0x57, disp); break;                   // adc m, %rdx
    case 2: put(4, 0x49, 0xff, 0x47, disp); break;                   // incq m
    case 3: put(4, 0x49, 0x1b, 0x5f, disp); break;                   // sbb m, %rbx
    case 4: put(5, 0x41, 0x0f, 0x90 + pick(16), 0x47, disp); break;  // setcc m
    case 5: put(5, 0xf0, 0x49, 0x0f, 0xc1, 0x47), put(1, disp); break; // lock xadd %rax, m
    }
}
static void instruction(int depth) {
    int a = any(), b = any();
    switch (pick(depth > 20 ? 22 : 26)) {
    case 0: op_rr(0x11, a, b); break;                       // adc
    case 1: op_rr(0x19, a, b); break;                       // sbb
    case 2: op_r(0xff, 0, a); break;                        // inc
    case 3: op_r(0xff, 1, a); break;                        // dec
    case 4: put(2, 0xb1, pick(2)); op_r(0xd3, 4 + pick(2), a); break; // mov cl; shl/shr cl
    case 5: put(2, 0xb1, pick(2)); op_r(0xd3, 7, a); break; // sar cl
    case 6: put(2, 0xb1, pick(2)); op_r(0xd3, pick(2), a); break;     // rol/ror cl
    case 7: put(2, 0xb1, pick(2)); op_r(0xd3, 2 + pick(2), a); break; // rcl/rcr cl
    case 8: op_rr(0x01, a, b); break;                       // add
    case 9: op_rr(0x39, a, b); break;                       // cmp
    case 10: put(1, 0xf5 + 3 * pick(2) + pick(1)); break;   // cmc or clc
    case 11: put(1, 0xf9); break;                           // stc
    case 12: put(4, 0x40 | a >> 3, 0x0f, 0x90 + pick(16), 0xc0 | (a & 7)); break; // setcc
    case 13: put(4, 0x48 | (a >> 3 << 2) | b >> 3, 0x0f, 0x40 + pick(16), 0xc0 | (a & 7) << 3 | (b & 7)); break; // cmovcc
    case 14: op_rr(0x85, a, b); break;                      // test
    case 15: op_rr(0x31, a, b); break;                      // xor
    case 16: op_r(0xf7, 2 + pick(2), a); break;             // not, neg
    case 17: put(2, 0x9c, 0x59); op_rr(0x31, 1, a); break;  // pushf; pop rcx; xor
    case 18: put(3, 0x9c, 0x9d, 0x9f); break;               // pushf; popf; lahf
    case 19: put(5, 0x48 | b >> 3, 0x0f, 0xba, 0xe0 | (b & 7), pick(64)); break; // bt
    case 20: memory(); break;
    case 21: op_rr(0x87, a, b); break;                      // xchg
    case 22: case 23: forward(depth); break;
    case 24: call(depth); break;
    case 25: loop(depth); break;
    }
}
struct { uint64_t regs[16], flags, data[32]; } state;
// Loads registers from `state`, runs the code, stores them again.
void enter(void *code, void *state);
__asm__(".text\nenter: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; push %rsi\n"
        " lea 136(%rsi), %r15; push %rdi\n"
        " mov 0(%rsi), %rax; mov 16(%rsi), %rdx; mov 24(%rsi), %rbx; mov 40(%rsi), %rbp\n"
        " mov 56(%rsi), %rdi; mov 64(%rsi), %r8; mov 72(%rsi), %r9; mov 80(%rsi), %r10; mov 88(%rsi), %r11\n"
        " mov 96(%rsi), %r12; mov 104(%rsi), %r13; mov 112(%rsi), %r14; push 128(%rsi); popf; mov 48(%rsi), %rsi\n"
        " call *(%rsp); pushf; pop %rcx; add $8, %rsp; xchg %rsi, (%rsp); mov %rcx, 128(%rsi); pop %rcx; mov %rcx, 48(%rsi)\n"
        " mov %rax, 0(%rsi); mov %rdx, 16(%rsi); mov %rbx, 24(%rsi); mov %rbp, 40(%rsi); mov %rdi, 56(%rsi)\n"
        " mov %r8, 64(%rsi); mov %r9, 72(%rsi); mov %r10, 80(%rsi); mov %r11, 88(%rsi); mov %r12, 96(%rsi)\n"
        " mov %r13, 104(%rsi); mov %r14, 112(%rsi)\n"
        " pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; cld; ret\n");
static uint64_t hash(void) {
    uint64_t h = 0, *p = (uint64_t *)&state;
    for (size_t i = 0; i < sizeof state / 8; i++) h = (h ^ p[i]) * 0x100000001b3 + (h >> 29);
    return h;
}
enum { SIZE = 1 << 16 };
int main(void) {
    unsigned char *code = mmap(NULL, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 120; round++) {
        seed = round + 1;
        at = code;
        block(60 + pick(100), 0);
        put(1, 0xc3);
        CHECK(at < code + SIZE);
        int fd = open("code", O_RDWR | O_CREAT | O_TRUNC, 0700);
        CHECK(write(fd, code, SIZE) == SIZE);
        void *file = mmap(NULL, SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
        CHECK(file != MAP_FAILED);
        close(fd);
        uint64_t results[2];
        for (int way = 0; way < 2; way++) {
            uint64_t s = round * 77 + 5;
            for (int i = 0; i < 16; i++) state.regs[i] = next_random(&s);
            for (int i = 0; i < 32; i++) state.data[i] = next_random(&s);
            state.flags = 0x202 | (next_random(&s) & 0x8d5);
            for (int again = 0; again < 20; again++) enter(way ? file : code, &state);
            results[way] = hash();
        }
        munmap(file, SIZE);
        unlink("code");
        CHECK(results[0] == results[1]);
        if (round % 10 == 9) say("%d: %016lx", round + 1, results[0]);
    }
}
