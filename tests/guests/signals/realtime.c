// Real-time signals queue in order with their values; standard signals don't.
// variants: pie static musl
#include "guest.h"
static void handler(int sig, siginfo_t *info, void *context) {
    (void)context;
    say("+%d value %d code %d mine %d", sig - SIGRTMIN, info->si_value.sival_int, info->si_code, info->si_pid == getpid());
}
int main(void) {
    sigset_t set, old;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, &old);
    for (int i = 0; i < 4; i++) on_signal(SIGRTMIN + i, handler, 0);
    on_signal(SIGUSR1, handler, 0);
    for (int i = 0; i < 8; i++) {
        union sigval v = {.sival_int = i};
        CHECK(sigqueue(getpid(), SIGRTMIN + (7 - i) % 4, v) == 0);
    }
    struct timespec none = {0, 0};
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN + 2);
    siginfo_t info;
    int r = sigtimedwait(&one, &info, &none);
    say("sigtimedwait %d value %d", r - SIGRTMIN, info.si_value.sival_int);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return 0;
}
