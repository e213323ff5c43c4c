// A private mapping of a file that the program itself goes on writing to, making longer and shorter.
// variants: pie static
#include "guest.h"

static sigjmp_buf back;
static char *whole, *readable;

static void faulted(int sig, siginfo_t *info, void *context) {
    (void)info, (void)context;
    siglongjmp(back, sig);
}

// What is there, or the signal, negative.
static int at(volatile char *p) {
    int sig = sigsetjmp(back, 1);
    return sig ? -sig : *p;
}

static void show(const char *what) {
    int seen[8];
    for (int i = 0; i < 4; i++) {
        int offset = i < 2 ? i : (i - 1) * 4096;
        seen[i] = at(whole + offset);
        seen[i + 4] = at(readable + offset);
    }
    say("%s: %d %d %d %d, %d %d %d %d", what, seen[0], seen[1], seen[2], seen[3], seen[4], seen[5], seen[6], seen[7]);
}

int main(void) {
    on_signal(SIGBUS, faulted, SA_NODEFER);
    char name[] = "grows.XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0);
    whole = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    readable = mmap(NULL, 4 * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    show("empty");
    CHECK(write(fd, "abc", 3) == 3);
    show("three bytes");
    whole[0] = 'X';
    CHECK(pwrite(fd, "zy", 2, 0) == 2);
    show("over an own page and another");
    CHECK(ftruncate(fd, 5000) == 0);
    show("5000 bytes");
    whole[4096] = 'Q';
    CHECK(pwrite(fd, "k", 1, 4096) == 1);
    show("behind an own page");
    CHECK(ftruncate(fd, 4096) == 0);
    show("4096 bytes");
    CHECK(ftruncate(fd, 9000) == 0);
    show("9000 bytes");
    int other = open(name, O_WRONLY | O_APPEND);
    CHECK(write(other, "end", 3) == 3);
    say("appended %.3s %.3s", whole + 9000, readable + 9000);
    close(open(name, O_WRONLY | O_TRUNC));
    show("nothing");
    CHECK(pwrite(other, "new", 3, 0) == 3);
    show("new");
    pid_t child = fork();
    if (child == 0) {
        CHECK(pwrite(fd, "child", 5, 8192) == 5);
        show("child");
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(unlink(name) == 0);
    return 0;
}
