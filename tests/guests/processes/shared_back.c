// Bytes of a shared page that another process sets back to what they were before: a copy of the page from before a
// wait must not hide them.
#include "guest.h"
#define PAGES 64
#define WORD(n) (*(volatile int *)(memory + 4096L * (n)))
static char *memory;
static void hand(int *pipe) { CHECK(write(pipe[1], "x", 1) == 1); }
static void await(int *pipe) {
    char c;
    CHECK(read(pipe[0], &c, 1) == 1);
}
int main(void) {
    memory = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    int to_child[2], to_parent[2];
    CHECK(!pipe(to_child) && !pipe(to_parent));
    pid_t child = fork();
    if (child == 0) {
        await(to_child);
        WORD(40) = 1;
        hand(to_parent);
        // It has page 40 and runs: the parent must wait for it.
        for (volatile long n = 0; n < 20000000; n++) {}
        await(to_child);
        WORD(0) = 0;
        hand(to_parent);
        _exit(0);
    }
    // Page 0 is used before all others, and forgotten first.
    for (int n = 0; n < 32; n++) WORD(n) = 0;
    hand(to_child);
    await(to_parent);
    WORD(40) = 2;
    WORD(0) = 1;
    hand(to_child);
    await(to_parent);
    int sum = 0;
    if (WORD(0))
        for (int n = 0; n < 10; n++) sum += WORD(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("page 0 has %d, page 40 has %d, %d", WORD(0), WORD(40), sum);
}
