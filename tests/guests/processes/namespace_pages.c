// Memory shared by processes of different pid namespaces, who take turns with it without a system call: none is
// disturbed by its number, all get on. Where namespaces may not be made, the processes are ordinary ones.
#include "guest.h"
#include <sched.h>
enum { TURNS = 12 };
static void take_turns(volatile int *turn, int mine, int of) {
    for (int n = 0; n < TURNS; n++) {
        while (__atomic_load_n(turn, __ATOMIC_ACQUIRE) % of != mine) __builtin_ia32_pause();
        __atomic_add_fetch(turn, 1, __ATOMIC_RELEASE);
    }
}
int main(void) {
    int *turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(turn != MAP_FAILED);
    pid_t children[2];
    for (int n = 0; n < 2; n++) {
        pid_t pid = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
        if (pid < 0) pid = fork();
        CHECK(pid >= 0);
        if (!pid) {
            take_turns(turn, n + 1, 3);
            _exit(n);
        }
        children[n] = pid;
    }
    take_turns(turn, 0, 3);
    for (int n = 0; n < 2; n++) {
        int status;
        CHECK(waitpid(children[n], &status, 0) == children[n]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == n);
    }
    say("%d turns", *turn);
}
