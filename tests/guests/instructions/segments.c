// FS and GS bases through arch_prctl and the fsgsbase instructions; gs-relative data; selectors.
// flags: -mfsgsbase
// cpu: fsgsbase
// variants: pie static
#include "guest.h"
#include <asm/prctl.h>
#include <immintrin.h>
static uint64_t block[8] = {10, 20, 30, 40, 50, 60, 70, 80};
static void *in_thread(void *unused) {
    (void)unused;
    uint64_t v;
    CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, block + 4) == 0);
    __asm__ volatile("mov %%gs:8, %0" : "=r"(v));
    say("thread gs:8 %lu", v);
    return NULL;
}
int main(void) {
    uint64_t v, base = 0;
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &base) == 0);
    say("gs starts at %lu", base);
    CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, block) == 0);
    __asm__ volatile("mov %%gs:16, %0" : "=r"(v));
    say("gs:16 %lu", v);
    uint64_t index = 3;
    __asm__ volatile("mov %%gs:(,%1,8), %0; addq $5, %%gs:(,%1,8); lock incq %%gs:0" : "=&r"(v) : "r"(index) : "memory", "cc");
    say("gs:[3] %lu, now %lu, first %lu", v, block[3], block[0]);
    __asm__ volatile("push %%gs:32; pop %0" : "=r"(v));
    say("push gs:32 %lu", v);
    __asm__ volatile("lea %%gs:8, %0" : "=r"(v));
    say("lea ignores it: %lu", v);
    uint64_t from[2] = {111, 222};
    block[6] = (uint64_t)from;
    __asm__ volatile("mov %%gs:48, %0; mov 8(%0), %0" : "=&r"(v));
    say("through %lu", v);
    uint64_t to[2] = {0, 0}, *s = (uint64_t *)8, *d = to;
    __asm__ volatile("gs movsq" : "+S"(s), "+D"(d) : : "memory");
    say("gs movs %lu", to[0]);
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, in_thread, NULL));
    pthread_join(t, NULL);
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &base) == 0);
    CHECK(base == (uint64_t)block);
    pid_t pid = fork();
    if (!pid) {
        __asm__ volatile("mov %%gs:0, %0" : "=r"(v));
        _exit((int)v);
    }
    int status;
    waitpid(pid, &status, 0);
    say_status("gs after fork", status);
    CHECK(_readgsbase_u64() == (uint64_t)block);
    _writegsbase_u64((uint64_t)(block + 1));
    __asm__ volatile("mov %%gs:0, %0" : "=r"(v));
    say("wrgsbase %lu", v);
    uint64_t fs = _readfsbase_u64(), self;
    __asm__ volatile("mov %%fs:0, %0" : "=r"(self));
    CHECK(fs == self);
    // An FS of our own for a moment.
    _writefsbase_u64((uint64_t)block);
    __asm__ volatile("mov %%fs:24, %0" : "=r"(v));
    _writefsbase_u64(fs);
    say("wrfsbase %lu", v);
    CHECK(syscall(SYS_arch_prctl, ARCH_SET_FS, block) == 0);
    __asm__ volatile("mov %%fs:24, %0" : "=r"(v));
    syscall(SYS_arch_prctl, ARCH_SET_FS, fs);
    say("set_fs %lu", v);
    CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, ~0ul << 47) == -1);
    say("bad base: errno %d", errno);
    unsigned short cs, ds, ss;
    __asm__("mov %%cs, %0; mov %%ds, %1; mov %%ss, %2" : "=r"(cs), "=r"(ds), "=r"(ss));
    say("selectors %x %x %x", cs, ds, ss);
}
