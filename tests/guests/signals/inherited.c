// What fork and exec keep: ignored signals and the mask yes, handlers and pending ones as they
// should be.
// variants: pie static
#include "guest.h"
static void handler(int sig) { (void)sig; }
static int count_ignored(void) {
    int n = 0;
    for (int s = 1; s < 65; s++) {
        struct sigaction a;
        if (sigaction(s, NULL, &a) == 0 && a.sa_handler == SIG_IGN) { say(" ignored %d", s); n++; }
        else if (sigaction(s, NULL, &a) == 0 && a.sa_handler != SIG_DFL) say(" handled %d", s);
    }
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    for (int s = 1; s < 65; s++) if (sigismember(&set, s) == 1) say(" blocked %d", s);
    sigpending(&set);
    for (int s = 1; s < 65; s++) if (sigismember(&set, s) == 1) say(" pending %d", s);
    return n;
}
int main(int argc, char **argv) {
    say("start%s: %d", argc > 1 ? argv[1] : "", count_ignored());
    if (argc > 1) return 0;
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, handler);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGWINCH);
    pid_t pid = fork();
    if (!pid) {
        say("child: %d", count_ignored());
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    char *args[] = {argv[0], " again", NULL};
    execv("/proc/self/exe", args);
    return 1;
}
