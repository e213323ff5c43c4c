// Handlers, masks, SA_NODEFER, SA_RESETHAND, SA_ONSTACK, nesting, pending signals, sigaction's
// old values.
// variants: pie static musl
#include "guest.h"
static volatile int depth, deepest, count, calls;
static char alternate[65536];
static void plain(int sig) { count += sig; }
static void nested(int sig, siginfo_t *info, void *context) {
    (void)info; (void)context;
    if (++depth > deepest) deepest = depth;
    if (depth < 5 && calls++ < 20) raise(sig);
    depth--;
}
static void on_stack(int sig, siginfo_t *info, void *context) {
    (void)sig; (void)info; (void)context;
    char here;
    count = &here >= alternate && &here < alternate + sizeof alternate;
    stack_t s;
    sigaltstack(NULL, &s);
    say("on alternate stack %d, flag %d", count, (s.ss_flags & SS_ONSTACK) != 0);
    stack_t other = {.ss_sp = alternate, .ss_size = sizeof alternate};
    say("change refused %d", sigaltstack(&other, NULL) == -1 && errno == EPERM);
}
static void outer(int sig, siginfo_t *info, void *context) {
    (void)info; (void)context;
    say("enter %d", sig);
    if (sig == SIGUSR1) {
        raise(SIGUSR2); // blocked by sa_mask
        raise(SIGWINCH); // not blocked
        sigset_t pending;
        sigpending(&pending);
        say("pending %d %d", sigismember(&pending, SIGUSR2), sigismember(&pending, SIGWINCH));
    }
    say("leave %d", sig);
}
int main(void) {
    signal(SIGUSR1, plain);
    for (int i = 0; i < 1000; i++) raise(SIGUSR1);
    say("count %d", count);
    on_signal(SIGUSR1, nested, SA_NODEFER);
    raise(SIGUSR1);
    say("nodefer depth %d", deepest);
    deepest = calls = 0;
    on_signal(SIGUSR1, nested, 0);
    raise(SIGUSR1);
    say("deferred depth %d", deepest);
    calls = 20;
    on_signal(SIGUSR1, nested, SA_RESETHAND);
    raise(SIGUSR1);
    struct sigaction old;
    sigaction(SIGUSR1, NULL, &old);
    say("reset %d", old.sa_handler == SIG_DFL);
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, was;
    CHECK(sigaltstack(&stack, &was) == 0);
    say("was disabled %d", was.ss_flags == SS_DISABLE);
    on_signal(SIGUSR1, on_stack, SA_ONSTACK);
    raise(SIGUSR1);
    struct sigaction action = {.sa_sigaction = outer, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGWINCH, &action, NULL);
    raise(SIGUSR1);
    // Blocked, raised thrice, unblocked: delivered once, lowest number first.
    sigset_t set, previous;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, &previous);
    for (int i = 0; i < 3; i++) raise(SIGWINCH), raise(SIGUSR2);
    say("unblocking");
    sigprocmask(SIG_SETMASK, &previous, NULL);
    say("too small %d", sigaltstack(&(stack_t){.ss_sp = alternate, .ss_size = 100}, NULL) == -1 && errno == ENOMEM);
    errno = 0;
    say("kill refused %d", signal(SIGKILL, plain) == SIG_ERR && errno == EINVAL);
    sigaction(SIGUSR1, NULL, &old);
    say("old flags %d mask %d", (old.sa_flags & SA_SIGINFO) != 0, sigismember(&old.sa_mask, SIGUSR2));
    signal(SIGCHLD, SIG_IGN);
    raise(SIGCHLD);
    say("done");
}
