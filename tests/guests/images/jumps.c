// setjmp/longjmp and sigsetjmp, down and up many frames, and out of alternate loops.
// variants: pie debug static musl
#include "guest.h"
static jmp_buf env;
static void down(int n) {
    volatile char frame[200];
    frame[n % 200] = (char)n;
    if (n == 0) longjmp(env, 7);
    down(n - 1);
    frame[0]++;
}
int main(void) {
    volatile long total = 0;
    for (volatile int i = 0; i < 2000; i++) {
        int r = setjmp(env);
        if (r == 0) down(i % 50);
        total += r;
    }
    say("total %ld", total);
    int r = setjmp(env);
    if (!r) longjmp(env, 0);
    say("longjmp 0 gives %d", r);
    sigjmp_buf senv;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    if (sigsetjmp(senv, 1) == 0) {
        sigprocmask(SIG_BLOCK, &set, NULL);
        siglongjmp(senv, 1);
    }
    sigprocmask(SIG_BLOCK, NULL, &set);
    say("mask restored: %d", !sigismember(&set, SIGUSR1));
}
