// The first process of a pid namespace: signals that kill by default don't, whoever sends them; its own faults
// do. Its children are as mortal as others. Where namespaces may not be made, nothing is tested.
#include "guest.h"
#include <sched.h>
static const int sent[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGSEGV, SIGABRT, SIGALRM, SIGFPE};
static int first(int how) {
    CHECK(getpid() == 1);
    for (size_t n = 0; n < sizeof sent / sizeof *sent; n++) {
        CHECK(kill(1, sent[n]) == 0);
        CHECK(raise(sent[n]) == 0);
    }
    CHECK(kill(1, SIGKILL) == 0);
    pid_t pid = fork();
    if (!pid) {
        for (size_t n = 0; n < sizeof sent / sizeof *sent; n++) CHECK(kill(1, sent[n]) == 0);
        raise(SIGTERM);
        _exit(1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    if (how == 1) *(volatile int *)8 = 1;
    if (how == 2) __builtin_trap();
    _exit(5);
}
int main(void) {
    // The outer process's own view, so that a failure to make one looks the same.
    const char *ends[] = {"exit 5", "signal 11", "signal 4"};
    for (int how = 0; how < 3; how++) {
        pid_t pid = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) first(how);
        if (pid > 0) {
            int status;
            char end[32];
            CHECK(waitpid(pid, &status, 0) == pid);
            if (WIFEXITED(status)) sprintf(end, "exit %d", WEXITSTATUS(status));
            else sprintf(end, "signal %d", WTERMSIG(status));
            if (strcmp(end, ends[how])) say("%s instead of %s", end, ends[how]);
        }
    }
    say("spared");
}
