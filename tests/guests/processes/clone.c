// clone in the forms libraries use: shared memory with its own stack, files shared or not,
// parent and child tid, exit signal, pidfd, clone3, unshared thread-like children.
#include "guest.h"
#include <linux/sched.h>
#include <sched.h>
static char stack[65536];
static volatile int shared;
static int fd;
static int body(void *arg) { shared = 7; if (arg) close(fd); return 3; }
int main(void) {
    int status, parent_tid = 0, child_tid = 0;
    pid_t pid = clone(body, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    CHECK(waitpid(pid, &status, 0) == pid);
    say_status("vm", status);
    say("shared %d", shared);
    shared = 0;
    pid = clone(body, stack + sizeof stack, SIGCHLD, NULL);
    waitpid(pid, &status, 0);
    say("not shared %d", shared);
    fd = dup(1);
    pid = clone(body, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, "close");
    waitpid(pid, &status, 0);
    say("files shared %d", fcntl(fd, F_GETFD) == -1);
    fd = dup(1);
    pid = clone(body, stack + sizeof stack, CLONE_VM | SIGCHLD, "close");
    waitpid(pid, &status, 0);
    say("files not shared %d", fcntl(fd, F_GETFD) == 0);
    pid = clone(body, stack + sizeof stack, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_VM | SIGCHLD, NULL, &parent_tid, NULL, &child_tid);
    waitpid(pid, &status, 0);
    say("tids %d %d", parent_tid == pid, child_tid == pid);
    // No exit signal: only __WALL or __WCLONE waits see it.
    pid = clone(body, stack + sizeof stack, CLONE_VM, NULL);
    say("plain wait %d", waitpid(pid, &status, 0) == -1 && errno == ECHILD);
    CHECK(waitpid(pid, &status, __WALL) == pid);
    int pidfd = -1;
    pid = clone(body, stack + sizeof stack, CLONE_VM | CLONE_PIDFD | SIGCHLD, NULL, &pidfd);
    siginfo_t info;
    CHECK(waitid(P_PIDFD, pidfd, &info, WEXITED) == 0);
    say("pidfd %d %d", info.si_pid == pid, info.si_status);
    struct clone_args args = {.exit_signal = SIGCHLD};
    long r = syscall(SYS_clone3, &args, sizeof args);
    if (r == 0) _exit(9);
    if (r > 0) { waitpid(r, &status, 0); CHECK(WEXITSTATUS(status) == 9); }
    else CHECK(errno == ENOSYS);
    say("bad flags %d", syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0) == -1 && errno == EINVAL);
    say("done");
}
