// Limits and identity: rlimits as inherited, uname, ids, umask, cwd, scheduling, times, sysinfo.
// variants: pie static
#include "guest.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/times.h>
#include <sys/utsname.h>
int main(void) {
    for (int i = 0; i < 16; i++) {
        struct rlimit l;
        CHECK(getrlimit(i, &l) == 0);
        say("limit %d: %ld %ld", i, (long)l.rlim_cur, (long)l.rlim_max);
    }
    struct utsname u;
    CHECK(uname(&u) == 0);
    say("%s %s %s", u.sysname, u.release, u.machine);
    say("ids %d %d %d %d", getuid(), geteuid(), getgid(), getegid());
    mode_t mask = umask(027);
    umask(mask);
    say("umask %o", mask);
    say("priority %d policy %d", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
    say("pid is tid %d, group leader %d", getpid() == syscall(SYS_gettid), getpgrp() == getpid());
    say("cpus %ld", sysconf(_SC_NPROCESSORS_ONLN));
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    say("affinity %d", CPU_COUNT(&set));
    say("page %ld clock %ld", sysconf(_SC_PAGESIZE), sysconf(_SC_CLK_TCK));
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_maxrss > 0);
    char cwd[4096], link[4096];
    CHECK(getcwd(cwd, sizeof cwd));
    ssize_t n = readlink("/proc/self/cwd", link, sizeof link);
    say("cwd %d", n == (ssize_t)strlen(cwd) && !memcmp(cwd, link, n));
    // Lowered limits hold for the program.
    struct rlimit fsize = {1000, 1000};
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &fsize) == 0);
    int fd = open("big", O_RDWR | O_CREAT, 0600);
    char data[2000] = {0};
    say("written %zd", write(fd, data, sizeof data));
    ssize_t more = write(fd, data, 10);
    say("then %zd errno %d", more, errno == EFBIG);
    unlink("big");
}
