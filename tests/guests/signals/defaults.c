// Default actions as a parent sees them, for signals raised and for faults; with the core bit.
// variants: pie static
// stops: own
#include "guest.h"
#include <sys/resource.h>
static void try(const char *name, int sig, int core) {
    pid_t pid = fork();
    if (!pid) {
        struct rlimit limit = {core ? RLIM_INFINITY : 0, RLIM_INFINITY};
        setrlimit(RLIMIT_CORE, &limit);
        raise(sig);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    say_status(name, status);
    if (WIFSTOPPED(status)) {
        kill(pid, SIGCONT);
        waitpid(pid, &status, 0);
        say_status(" then", status);
    }
}
int main(void) {
    int all[] = {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM,
                 SIGTERM, SIGSTKFLT, SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF,
                 SIGWINCH, SIGIO, SIGPWR, SIGSYS, SIGRTMIN, SIGRTMAX};
    setpgid(0, 0);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d", all[i]);
        try(name, all[i], 0);
    }
    pid_t pid = fork();
    int status;
    if (!pid) { volatile int zero = 0; zero = 5 / zero; _exit(zero); }
    waitpid(pid, &status, 0);
    say_status("divide", status);
    pid = fork();
    if (!pid) { ((void (*)(void))16)(); _exit(0); }
    waitpid(pid, &status, 0);
    say_status("call", status);
    pid = fork();
    if (!pid) { // blocked synchronous signals kill all the same
        sigset_t set;
        sigfillset(&set);
        sigprocmask(SIG_SETMASK, &set, NULL);
        *(volatile int *)8 = 1;
        _exit(0);
    }
    waitpid(pid, &status, 0);
    say_status("blocked", status);
    pid = fork();
    if (!pid) { // and ignored ones
        signal(SIGSEGV, SIG_IGN);
        *(volatile int *)8 = 1;
        _exit(0);
    }
    waitpid(pid, &status, 0);
    say_status("ignored", status);
    pid = fork();
    if (!pid) { abort(); }
    waitpid(pid, &status, 0);
    say_status("abort", status);
    pid = fork();
    if (!pid) { // SIGPIPE
        int fds[2];
        CHECK(pipe(fds) == 0);
        close(fds[0]);
        write(fds[1], "x", 1);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    say_status("pipe", status);
}
