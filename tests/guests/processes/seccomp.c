// Filters that a program installs for itself: errno, signals, death, threads with and without, inherited by children and over
// exec. What each call comes to is printed.
// variants: static pie
// flags: -D_GNU_SOURCE
#include "guest.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define NR (offsetof(struct seccomp_data, nr))
#define LOW(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define HIGH(n) (LOW(n) + 4)

// One call that nobody has: 600 to 699 answer by what the filter says.
static long call(long nr, long a) {
    long ret = syscall(nr, a, 2, 3, 4, 5, 6);
    return ret == -1 ? -errno : ret;
}

// What it returns, or the error, negative.
static int install(struct sock_filter *code, unsigned len, unsigned flags) {
    struct sock_fprog prog = {.len = (unsigned short)len, .filter = code};
    int ret = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
    return ret == -1 ? -errno : ret;
}

// A call of that number gets that answer.
static int answer(int nr, unsigned action, unsigned flags) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return install(code, 7, flags);
}

static volatile int traps;
static void trapped(int sig, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    long ip = (long)info->si_call_addr, rip = uc->uc_mcontext.gregs[REG_RIP];
    say("signal %d code %d errno %d call %d arch %x, behind it %d, rax %lld", sig, info->si_code, info->si_errno,
        info->si_syscall, info->si_arch, ip == rip, uc->uc_mcontext.gregs[REG_RAX]);
    uc->uc_mcontext.gregs[REG_RAX] = -(long)(1000 + traps++);
}

static void *other(void *nr) {
    return (void *)call((long)nr, 0);
}

static long in_thread(long nr) {
    pthread_t thread;
    void *got;
    CHECK(pthread_create(&thread, NULL, other, (void *)nr) == 0);
    CHECK(pthread_join(thread, &got) == 0);
    return (long)got;
}

static int gate[2];
static void *waits(void *unused) {
    (void)unused;
    char c;
    CHECK(read(gate[0], &c, 1) == 1);
    long got = call(603, 0);
    CHECK(read(gate[0], &c, 1) == 1);
    return (void *)(got * 1000 + call(604, 0));
}

static void child(const char *name, void (*body)(void)) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        body();
        _exit(7);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        say("%s: killed by %d", name, WTERMSIG(status));
    else
        say("%s: exit %d", name, WEXITSTATUS(status));
}

static void kill_process(void) {
    CHECK(answer(605, SECCOMP_RET_KILL_PROCESS, 0) == 0);
    call(605, 0);
}
static void trap_blocked(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    CHECK(answer(606, SECCOMP_RET_TRAP, 0) == 0);
    sigprocmask(SIG_BLOCK, &set, NULL);
    call(606, 0);
}
static void trap_default(void) {
    signal(SIGSYS, SIG_DFL);
    CHECK(answer(606, SECCOMP_RET_TRAP, 0) == 0);
    call(606, 0);
}
static void *dies(void *unused) {
    (void)unused;
    call(607, 0);
    return NULL;
}
static void kill_thread(void) {
    CHECK(answer(607, SECCOMP_RET_KILL_THREAD, 0) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, dies, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    say("the thread is gone, the process isn't");
    _exit(9);
}
static char *self;
static void executes(void) {
    CHECK(answer(608, SECCOMP_RET_ERRNO | 77, 0) == 0);
    execl(self, self, "again", (char *)NULL);
    _exit(98);
}

int main(int argc, char **argv) {
    self = argv[0];
    if (argc > 1) {
        say("behind exec: %ld, mode %d", call(608, 0), prctl(PR_GET_SECCOMP));
        return 0;
    }
    say("mode %d", prctl(PR_GET_SECCOMP));
    unsigned actions[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW, 0x12340000};
    for (unsigned n = 0; n < 5; n++)
        say("action %x: %ld", actions[n], syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &actions[n]));
    // Bad ones.
    struct sock_filter bad[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), BPF_STMT(BPF_RET | BPF_K, 0)};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    say("bad: %d", install(bad, 2, 0));
    bad[0] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 5, 0, 0);
    say("bad: %d", install(bad, 2, 0));
    say("empty: %d", install(bad, 0, 0));
    errno = 0;
    long nowhere = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 8);
    say("nowhere: %ld %d", nowhere, errno);
    // A thread that is there before, one that is made after.
    CHECK(pipe(gate) == 0);
    pthread_t early;
    CHECK(pthread_create(&early, NULL, waits, NULL) == 0);
    CHECK(answer(603, SECCOMP_RET_ERRNO | 5, 0) == 0);
    say("603: %ld, in a new thread %ld", call(603, 0), in_thread(603));
    CHECK(write(gate[1], "x", 1) == 1);
    CHECK(answer(604, SECCOMP_RET_ERRNO | 6, SECCOMP_FILTER_FLAG_TSYNC) == 0);
    CHECK(write(gate[1], "x", 1) == 1);
    void *got;
    CHECK(pthread_join(early, &got) == 0);
    say("the early thread: %ld", (long)got % 1000);
    // The strongest counts; of equals the newest.
    CHECK(answer(603, SECCOMP_RET_ERRNO | 8, 0) == 0);
    CHECK(answer(603, SECCOMP_RET_LOG, 0) == 0);
    say("603 again: %ld; huge errno: %d", call(603, 0), answer(609, SECCOMP_RET_ERRNO | 0xffff, 0));
    say("609: %d", (int)syscall(609) == -1 ? errno : 0);
    // By its arguments.
    struct sock_filter args[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 610, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LOW(0)),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff),
        BPF_STMT(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO),
        BPF_STMT(BPF_RET | BPF_A, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, HIGH(1)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    CHECK(install(args, 8, 0) == 0);
    say("610: %ld %ld", call(610, 0x1234), call(610, 0x99));
    // Real calls.
    CHECK(answer(SYS_socket, SECCOMP_RET_ERRNO | EACCES, 0) == 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    say("socket: %d %d", fd, errno);
    CHECK(answer(SYS_getppid, SECCOMP_RET_TRACE, 0) == 0);
    say("getppid: %d", getppid());
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    CHECK(answer(611, SECCOMP_RET_TRAP | 42, 0) == 0);
    for (int n = 0; n < 3; n++)
        say("611: %ld", call(611, n));
    child("kill", kill_process);
    child("trap, blocked", trap_blocked);
    child("trap, default", trap_default);
    child("kill a thread", kill_thread);
    child("exec", executes);
    say("mode %d", prctl(PR_GET_SECCOMP));
    return 0;
}
