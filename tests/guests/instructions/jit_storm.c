// Generated code that is made anew all the time, in several kinds of memory and by several threads, while
// timer signals and the kernel's writes arrive; handlers look at the registers and make code themselves.
// variants: pie static
// flags: -O1 -pthread
#include "guest.h"
#include <sys/time.h>
#define THREADS 3
#define ROUNDS 1500
typedef uint64_t code_fn(uint64_t);

// A place for code: written through one address, run through the other.
struct place {
    unsigned char *writable, *executable;
    int toggled;
};
static struct place places[THREADS + 1][3], for_handlers[THREADS + 1][3];
static __thread struct place *in_handler;
static volatile uint64_t seen, samples;
static int zero;

// A loop: for (n = count; n; n--) value = (value + add) * 3 ^ n;
static unsigned emit(unsigned char *to, uint32_t add, uint32_t count) {
    unsigned char code[] = {0xb9, 0, 0, 0, 0,             // mov ecx, count
                            0x48, 0x89, 0xf8,             // mov rax, rdi
                            0x48, 0x05, 0, 0, 0, 0,       // add rax, add
                            0x48, 0x8d, 0x04, 0x40,       // lea rax, [rax+rax*2]
                            0x48, 0x31, 0xc8,             // xor rax, rcx
                            0xff, 0xc9,                   // dec ecx
                            0x75, 0xef,                   // jne to the add
                            0xc3};
    memcpy(code + 1, &count, 4);
    memcpy(code + 10, &add, 4);
    memcpy(to, code, sizeof code);
    return sizeof code;
}
static uint64_t expected(uint64_t value, uint32_t add, uint32_t count) {
    for (uint32_t n = count; n; n--) value = (value + add) * 3 ^ n;
    return value;
}
static uint64_t make_and_run(struct place *at, unsigned offset, uint64_t value, uint32_t add, uint32_t count) {
    if (at->toggled) CHECK(mprotect(at->writable, 4096, PROT_READ | PROT_WRITE) == 0);
    emit(at->writable + offset, add, count);
    if (at->toggled) CHECK(mprotect(at->writable, 4096, PROT_READ | PROT_EXEC) == 0);
    uint64_t result = ((code_fn *)(at->executable + offset))(value);
    CHECK(result == expected(value, add, count));
    return result;
}
static void handler(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)info;
    if (!in_handler) return;
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    seen = seen * 31 + regs[REG_RAX] + regs[REG_RCX] + regs[REG_RIP];
    samples++;
    uint64_t now = samples;
    make_and_run(in_handler, now % 2 * 100, now, now & 7, 1 + now % 3);
}
static void make_places(struct place *three) {
    int rwx = PROT_READ | PROT_WRITE | PROT_EXEC;
    unsigned char *one = mmap(NULL, 4096, rwx, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *two = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = memfd_create("code", 0);
    CHECK(one != MAP_FAILED && two != MAP_FAILED && fd >= 0 && ftruncate(fd, 4096) == 0);
    three[0] = (struct place){one, one, 0};
    three[1] = (struct place){two, two, 1};
    three[2] = (struct place){mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
                              mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0), 0};
    CHECK(three[2].writable != MAP_FAILED && three[2].executable != MAP_FAILED);
    close(fd);
}
static void *work(void *number) {
    struct place *mine = places[(intptr_t)number];
    in_handler = for_handlers[(intptr_t)number];
    uint64_t random = (intptr_t)number, value = 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct place *at = &mine[next_random(&random) % 3];
        unsigned offset = next_random(&random) % 8 * 64;
        value = make_and_run(at, offset, value, next_random(&random) & 0xffff, 1 + next_random(&random) % 400);
        // The kernel writes into a page that has code in it.
        if (!at->toggled && round % 8 == 0) CHECK(read(zero, at->writable + 2048, 512) == 512);
        if (!at->toggled && round % 16 == 3) CHECK(clock_gettime(CLOCK_MONOTONIC, (void *)(at->writable + 3000)) == 0);
        if (round % 256 == 255) CHECK(madvise(mine[0].writable, 4096, MADV_DONTNEED) == 0);
        if (round % 256 == 127) {
            void *elsewhere = mremap(mine[0].writable, 4096, 8192, MREMAP_MAYMOVE);
            CHECK(elsewhere != MAP_FAILED);
            elsewhere = mremap(elsewhere, 8192, 4096, 0);
            mine[0].writable = mine[0].executable = elsewhere;
        }
    }
    return (void *)value;
}
int main(int argc, char **argv) {
    (void)argv;
    zero = open("/dev/zero", O_RDONLY);
    for (int n = 0; n <= THREADS; n++) {
        make_places(places[n]);
        make_places(for_handlers[n]);
    }
    // One handler at a time in each thread.
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGPROF, &action, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 300}, {0, 300}}, never = {0};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0 && setitimer(ITIMER_PROF, &often, NULL) == 0);
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    for (intptr_t n = 0; n < THREADS; n++) CHECK(pthread_create(&threads[n], NULL, work, (void *)n) == 0);
    sum += (uint64_t)work((void *)(intptr_t)THREADS);
    for (int n = 0; n < THREADS; n++) {
        void *result;
        CHECK(pthread_join(threads[n], &result) == 0);
        sum += (uint64_t)result;
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && setitimer(ITIMER_PROF, &never, NULL) == 0);
    say("%lx", sum);
    if (argc > 1) say("%lu: %lx", samples, seen);
}
