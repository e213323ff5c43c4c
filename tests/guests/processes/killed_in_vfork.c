// Children that share their parent's memory and end by SIGKILL, their own or their parent's other child's: the
// parent goes on, and finds in its memory what they did.
#include "guest.h"
#include <sched.h>
static char stack[65536];
static volatile int written;
static int own(void *arg) {
    written = 1;
    kill(getpid(), SIGKILL);
    return (int)(long)arg;
}
static int by_another(void *pipes) {
    int *all = pipes;
    char byte;
    written = 2;
    pid_t me = getpid();
    if (write(all[1], &me, sizeof me) != sizeof me) _exit(1);
    // Nobody ever writes there.
    return read(all[2], &byte, 1);
}
static int sleeps(pid_t pid) {
    char path[64], text[512] = "";
    sprintf(path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    return strrchr(text, ')')[2] == 'S';
}
static void wait_for(pid_t pid, const char *what) {
    int status;
    CHECK(waitpid(pid, &status, __WALL) == pid);
    say("%s: killed %d", what, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
int main(void) {
    int flags[] = {SIGCHLD, CLONE_VFORK | SIGCHLD};
    for (int n = 0; n < 2; n++) {
        written = 0;
        pid_t pid = clone(own, stack + sizeof stack, CLONE_VM | flags[n], NULL);
        CHECK(pid > 0);
        wait_for(pid, "own");
        say("written %d", written);
    }
    int pipes[4];
    CHECK(pipe(pipes) == 0 && pipe(pipes + 2) == 0);
    pid_t killer = fork();
    if (!killer) {
        pid_t victim;
        CHECK(read(pipes[0], &victim, sizeof victim) == sizeof victim);
        while (!sleeps(victim)) sched_yield();
        CHECK(kill(victim, SIGKILL) == 0);
        _exit(0);
    }
    pid_t pid = clone(by_another, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, pipes);
    wait_for(pid, "by another");
    say("written %d", written >= 2);
    int status;
    CHECK(waitpid(killer, &status, 0) == killer && status == 0);
}
