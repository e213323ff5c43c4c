// prctl(PR_SET_TSC): reading the time-stamp counter faults, in this thread and those that come from it.
// variants: pie static
#include "guest.h"
#include <sys/prctl.h>

static sigjmp_buf back;
static volatile int code;

static void faulted(int sig, siginfo_t *info, void *context) {
    (void)context;
    code = info->si_code;
    siglongjmp(back, sig);
}

static void read_counter(const char *what) {
    int state = -1;
    CHECK(prctl(PR_GET_TSC, &state) == 0);
    code = 0;
    int sig = sigsetjmp(back, 1);
    if (!sig) __builtin_ia32_rdtsc();
    volatile int first = sig;
    sig = sigsetjmp(back, 1);
    unsigned processor;
    if (!sig) __builtin_ia32_rdtscp(&processor);
    say("%s: %d, signals %d %d, code %d", what, state, first, sig, code);
}

static void *thread(void *unused) {
    (void)unused;
    read_counter("thread");
    CHECK(prctl(PR_SET_TSC, PR_TSC_ENABLE) == 0);
    read_counter("thread, allowed again");
    return NULL;
}

int main(void) {
    on_signal(SIGSEGV, faulted, SA_NODEFER);
    read_counter("first");
    CHECK(prctl(PR_SET_TSC, 7) == -1 && errno == EINVAL);
    CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
    read_counter("forbidden");
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    read_counter("still forbidden");
    pid_t child = fork();
    if (child == 0) {
        read_counter("child");
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say_status("child", status);
    CHECK(prctl(PR_SET_TSC, PR_TSC_ENABLE) == 0);
    read_counter("allowed");
    return 0;
}
