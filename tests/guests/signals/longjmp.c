// Leaving handlers by siglongjmp, thousands of times, from faults and from asynchronous
// signals; and by a C++-like unwind through setcontext.
// variants: pie static musl
#include "guest.h"
#include <sys/time.h>
static sigjmp_buf env;
static volatile long alarms;
static void fault(int sig) { siglongjmp(env, sig); }
static void alarm_(int sig) { (void)sig; if (++alarms % 2) siglongjmp(env, 1); }
int main(void) {
    signal(SIGSEGV, fault);
    signal(SIGFPE, fault);
    volatile long segv = 0, fpe = 0;
    volatile int zero = 0;
    for (volatile int i = 0; i < 3000; i++) {
        int r = sigsetjmp(env, 1);
        if (r == SIGSEGV) { segv++; continue; }
        if (r == SIGFPE) { fpe++; continue; }
        if (i % 2) *(volatile char *)8 = 1;
        else zero = 5 / zero;
    }
    say("%ld %ld", segv, fpe);
    struct sigaction action = {.sa_handler = alarm_};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 2000}, {0, 2000}};
    volatile uint64_t x = 1;
    sigsetjmp(env, 1);
    if (alarms == 0) setitimer(ITIMER_REAL, &timer, NULL);
    while (alarms < 20) x = x * 3 + 1;
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    say("alarms");
}
