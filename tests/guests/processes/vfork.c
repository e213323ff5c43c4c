// vfork: the child shares memory and the parent waits until it execs or exits.
// variants: pie static musl
#include "guest.h"
static volatile int shared = 1;
int main(void) {
    int status;
    for (int i = 0; i < 50; i++) {
        pid_t pid = vfork();
        if (!pid) { shared++; _exit(i); }
        waitpid(pid, &status, 0);
        CHECK(WEXITSTATUS(status) == i);
    }
    say("shared %d", shared);
    pid_t pid = vfork();
    if (!pid) { execl("/bin/echo", "echo", "from exec", NULL); _exit(1); }
    waitpid(pid, &status, 0);
    say_status("exec", status);
    pid = vfork();
    if (!pid) { execl("/no/such/program", "x", NULL); shared = errno; _exit(127); }
    waitpid(pid, &status, 0);
    say_status("failed exec", status);
    say("errno seen by the parent %d", shared == ENOENT);
    pid = vfork();
    if (!pid) { signal(SIGTERM, SIG_DFL); kill(getpid(), SIGTERM); _exit(0); }
    waitpid(pid, &status, 0);
    say_status("killed", status);
}
