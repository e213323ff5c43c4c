// Signals with handlers: sent to itself, from a timer, by a fault, inside each other.
// variants: debug
#include "guest.h"
#include <sys/time.h>
static volatile sig_atomic_t seen[65], order;
static sigjmp_buf back;

static void handler(int sig, siginfo_t *info, void *context) {
    (void)info, (void)context;
    seen[sig]++;  // MARK: handler
    order = order * 10 + sig % 10;
    if (sig == SIGUSR1) raise(SIGUSR2);
    if (sig == SIGSEGV) siglongjmp(back, 1);
}

int main(void) {
    const int signals[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGSEGV};
    for (int i = 0; i < 4; i++) on_signal(signals[i], handler, 0);
    raise(SIGUSR1);  // MARK: raised
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, &before) == 0);
    struct itimerval soon = {.it_value = {.tv_usec = 1000}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    while (!seen[SIGALRM]) sigsuspend(&before);
    if (!sigsetjmp(back, 1)) *(volatile int *)16 = 1;  // MARK: fault
    say("%d %d %d %d", seen[SIGUSR1], seen[SIGUSR2], seen[SIGALRM], seen[SIGSEGV]);
    return 0;
}
