// The strict mode of seccomp: reading, writing and leaving, else death.
// variants: static pie
#include "guest.h"
#include <linux/seccomp.h>
#include <sys/prctl.h>

static void child(const char *name, int again) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
        CHECK(write(1, "strict\n", 7) == 7);
        if (again)
            getpid();
        syscall(SYS_exit, 3);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        say("%s: killed by %d", name, WTERMSIG(status));
    else
        say("%s: exit %d", name, WEXITSTATUS(status));
}

int main(void) {
    child("leaves", 0);
    child("asks", 1);
    return 0;
}
