// SIGCHLD and its siginfo for exit, death, stop and continue; SA_NOCLDSTOP, SA_NOCLDWAIT, ignored.
// variants: pie static
// stops: own
#include "guest.h"
static volatile int hits, code, status_;
static void child(int sig, siginfo_t *info, void *c) { (void)sig; (void)c; code = info->si_code; status_ = info->si_status; hits++; }
static void wait_hits(int n, sigset_t *open) { while (hits < n) sigsuspend(open); }
int main(void) {
    sigset_t set, open;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &open);
    on_signal(SIGCHLD, child, 0);
    pid_t pid = fork();
    if (!pid) _exit(3);
    wait_hits(1, &open);
    say("exited %d %d", code == CLD_EXITED, status_);
    waitpid(pid, NULL, 0);
    hits = 0;
    pid = fork();
    if (!pid) for (;;) pause();
    kill(pid, SIGSTOP);
    wait_hits(1, &open);
    say("stopped %d %d", code == CLD_STOPPED, status_ == SIGSTOP);
    kill(pid, SIGCONT);
    wait_hits(2, &open);
    say("continued %d", code == CLD_CONTINUED);
    kill(pid, SIGTERM);
    wait_hits(3, &open);
    say("killed %d %d", code == CLD_KILLED, status_ == SIGTERM);
    waitpid(pid, NULL, 0);
    on_signal(SIGCHLD, child, SA_NOCLDSTOP);
    hits = 0;
    pid = fork();
    if (!pid) for (;;) pause();
    kill(pid, SIGSTOP);
    int status;
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    say_status("waited", status);
    kill(pid, SIGCONT);
    CHECK(waitpid(pid, &status, WCONTINUED) == pid);
    say_status("waited", status);
    say("no signal for stops: %d", hits);
    kill(pid, SIGKILL);
    wait_hits(1, &open);
    CHECK(waitpid(pid, &status, 0) == pid);
    say_status("waited", status);
    signal(SIGCHLD, SIG_IGN);
    pid = fork();
    if (!pid) _exit(0);
    say("ignored: no zombie %d", waitpid(pid, &status, 0) == -1 && errno == ECHILD);
    on_signal(SIGCHLD, child, SA_NOCLDWAIT);
    pid = fork();
    if (!pid) _exit(0);
    say("nocldwait %d", waitpid(pid, &status, 0) == -1 && errno == ECHILD);
}
