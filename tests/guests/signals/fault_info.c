// siginfo of asynchronous signals: kill, raise, sigqueue, tgkill; and the frame's own facts
// (mask in uc_sigmask, alternate stack in uc_stack, handler's argument registers).
// variants: pie static
#include "guest.h"
static void show(int sig, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    say("sig %d code %d pid %d uid %d masked %d stack %zu link %d aligned %d", sig, info->si_code, info->si_pid == getpid(),
        info->si_uid == getuid(), sigismember(&uc->uc_sigmask, SIGWINCH), uc->uc_stack.ss_size, uc->uc_link == NULL,
        ((uintptr_t)__builtin_frame_address(0) & 15) == 0);
}
int main(void) {
    on_signal(SIGUSR1, show, SA_ONSTACK);
    kill(getpid(), SIGUSR1);
    raise(SIGUSR1);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 3});
    syscall(SYS_tkill, getpid(), SIGUSR1);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    raise(SIGUSR1);
}
