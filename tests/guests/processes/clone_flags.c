// Flags of clone that don't go together: the kernel's errors.
#include "guest.h"
#include <sched.h>
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x1000
#endif
static char stack[65536];
static int body(void *arg) { (void)arg; return 3; }
static void try(const char *what, int flags) {
    int tid = 0, pidfd = 0;
    errno = 0;
    int pid = clone(body, stack + sizeof stack, flags, NULL, &pidfd, NULL, &tid);
    say("%s: %s", what, pid < 0 ? (errno == EINVAL ? "EINVAL" : "another error") : "made");
    if (pid > 0) waitpid(pid, NULL, __WALL);
}
int main(void) {
    try("thread", CLONE_THREAD);
    try("thread, memory", CLONE_THREAD | CLONE_VM);
    try("thread, handlers", CLONE_THREAD | CLONE_SIGHAND);
    try("handlers", CLONE_SIGHAND | SIGCHLD);
    try("thread in a new pid namespace", CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWPID);
    try("thread in a new user namespace", CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWUSER);
    try("folder and a new mount namespace", CLONE_FS | CLONE_NEWNS | SIGCHLD);
    try("folder and a new user namespace", CLONE_FS | CLONE_NEWUSER | SIGCHLD);
    try("semaphores and a new ipc namespace", CLONE_SYSVSEM | CLONE_NEWIPC | SIGCHLD);
    try("pidfd and parent's tid", CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD);
    try("pidfd and detached", CLONE_PIDFD | CLONE_DETACHED | SIGCHLD);
    try("memory and handlers", CLONE_VM | CLONE_SIGHAND | SIGCHLD);
    try("plain", SIGCHLD);
}
