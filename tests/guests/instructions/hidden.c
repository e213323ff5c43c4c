// Instructions that user mode may not use, or not here: rdpmc faults.
// variants: pie static
#include "guest.h"
#include <setjmp.h>
#include <signal.h>
static sigjmp_buf back;
static void caught(int sig, siginfo_t *info, void *context) {
    (void)context;
    say("signal %d code %d", sig, info->si_code);
    siglongjmp(back, 1);
}
int main(void) {
    struct sigaction act = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, 0);
    if (!sigsetjmp(back, 1)) {
        __asm__ volatile("rdpmc" : : "c"(0) : "rax", "rdx");
        say("rdpmc works");
    }
    say("ok");
}
