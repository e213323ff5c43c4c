// Code in shared memory that is changed by another process.
// recorded: no
#include "guest.h"
int main(void) {
    int fd = memfd_create("code", 0);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    unsigned char *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *x = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    CHECK(w != MAP_FAILED && x != MAP_FAILED);
    int (*f)(void) = (int (*)(void))x;
    memcpy(w, "\xb8\0\0\0\0\xc3", 6);
    CHECK(f() == 0);
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        if (!pid) {
            w[1] = 100 + i;
            _exit(0);
        }
        waitpid(pid, NULL, 0);
        CHECK((f() & 255) == 100 + i);
    }
    say("through a child");
}
