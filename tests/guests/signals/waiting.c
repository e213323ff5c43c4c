// sigsuspend, sigwait, sigwaitinfo, ppoll and pselect with a mask, signalfd: no signal is lost
// between check and wait.
// variants: pie static
#include "guest.h"
#include <poll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
static volatile int hits;
static void hit(int sig) { (void)sig; hits++; }
int main(void) {
    sigset_t blocked, open;
    sigemptyset(&open);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGUSR1, hit);
    // Already pending when the wait starts.
    raise(SIGUSR1);
    int r = sigsuspend(&open);
    say("sigsuspend %d errno %d hits %d", r, errno == EINTR, hits);
    raise(SIGUSR1);
    r = ppoll(NULL, 0, NULL, &open);
    say("ppoll %d errno %d hits %d", r, errno == EINTR, hits);
    raise(SIGUSR1);
    r = pselect(0, NULL, NULL, NULL, NULL, &open);
    say("pselect %d errno %d hits %d", r, errno == EINTR, hits);
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    say("mask back %d", sigismember(&now, SIGUSR1));
    // From a child, ping-pong by sigsuspend: a lost wake-up would hang.
    pid_t parent = getpid();
    pid_t pid = fork();
    if (!pid) {
        hits = 0;
        for (int i = 0; i < 200; i++) {
            while (hits <= i) sigsuspend(&open);
            kill(parent, SIGUSR1);
        }
        _exit(0);
    }
    hits = 0;
    for (int i = 0; i < 200; i++) {
        kill(pid, SIGUSR1);
        while (hits <= i) sigsuspend(&open);
    }
    waitpid(pid, NULL, 0);
    say("ping pong %d", hits);
    int sig;
    raise(SIGUSR2);
    CHECK(sigwait(&blocked, &sig) == 0);
    say("sigwait %d", sig == SIGUSR2);
    siginfo_t info;
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 44});
    CHECK(sigwaitinfo(&blocked, &info) == SIGUSR1);
    say("sigwaitinfo %d %d", info.si_value.sival_int, info.si_code == SI_QUEUE);
    struct timespec soon = {0, 1000000};
    r = sigtimedwait(&blocked, &info, &soon);
    say("sigtimedwait %d %d", r, errno == EAGAIN);
    int fd = signalfd(-1, &blocked, SFD_CLOEXEC);
    CHECK(fd >= 0);
    raise(SIGUSR2);
    raise(SIGUSR1);
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(poll(&p, 1, -1) == 1);
    struct signalfd_siginfo s[3];
    ssize_t n = read(fd, s, sizeof s);
    say("signalfd %zd", n / (ssize_t)sizeof s[0]);
    for (int i = 0; i < n / (ssize_t)sizeof s[0]; i++) say(" %u from me %d", s[i].ssi_signo, s[i].ssi_pid == (unsigned)getpid());
    fcntl(fd, F_SETFL, O_NONBLOCK);
    say("empty %d", read(fd, s, sizeof s) == -1 && errno == EAGAIN);
}
