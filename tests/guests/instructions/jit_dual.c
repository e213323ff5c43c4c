// A JIT that writes through one mapping and runs from another (memfd), as hardened ones do; code in
// private memory after a fork.
#include "guest.h"
int main(void) {
    int fd = memfd_create("code", 0);
    CHECK(fd >= 0 && ftruncate(fd, 65536) == 0);
    unsigned char *w = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *x = mmap(NULL, 65536, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    CHECK(w != MAP_FAILED && x != MAP_FAILED);
    int (*f)(void) = (int (*)(void))x;
    long sum = 0;
    for (int i = 0; i < 2000; i++) {
        memcpy(w, "\xb8\0\0\0\0\xc3", 6);
        memcpy(w + 1, &i, 4);
        int r = f();
        CHECK(r == i);
        sum += r;
    }
    say("dual %ld", sum);
    for (int i = 0; i < 200; i++) {
        unsigned char bytes[] = {0xb8, i, 0, 0, 0, 0xc3};
        CHECK(pwrite(fd, bytes, 6, 4096) == 6);
        CHECK(((int (*)(void))(x + 4096))() == i);
    }
    say("through the file");
    CHECK(munmap(w, 65536) == 0 && munmap(x, 65536) == 0);
    // A private writable-executable copy after fork: each side its own.
    unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(p, "\xb8\x01\0\0\0\xc3", 6);
    CHECK(((int (*)(void))p)() == 1);
    pid_t pid = fork();
    p[1] = pid ? 3 : 2;
    int r = ((int (*)(void))p)();
    if (!pid) _exit(r);
    int status;
    waitpid(pid, &status, 0);
    say("parent %d child %d", r, WEXITSTATUS(status));
}
