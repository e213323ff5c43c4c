// Descriptors: only those a native run has; the lowest free number; closing all of them by
// close_range and by force breaks nothing; limits.
// variants: pie static musl
#include "guest.h"
#include <dirent.h>
#include <sys/resource.h>
#define close_range(first, last, flags) syscall(SYS_close_range, first, last, flags)
static void list(const char *what) {
    char names[512] = "";
    DIR *d = opendir("/proc/self/fd");
    if (!d) { say("%s: no /proc/self/fd", what); return; }
    int numbers[64], n = 0;
    for (struct dirent *e; (e = readdir(d));) if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d)) numbers[n++] = atoi(e->d_name);
    closedir(d);
    for (int i = 0; i < n; i++) for (int k = i + 1; k < n; k++) if (numbers[k] < numbers[i]) { int t = numbers[i]; numbers[i] = numbers[k]; numbers[k] = t; }
    for (int i = 0; i < n; i++) sprintf(names + strlen(names), " %d", numbers[i]);
    say("%s:%s", what, names);
}
int main(void) {
    list("at start");
    say("next %d", open("/dev/null", O_RDONLY));
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 1000000 ? limit.rlim_max : 1000000;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int open_count = 0;
    for (int i = 0; i < 70000; i++) open_count += fcntl(i, F_GETFD) >= 0;
    say("open %d", open_count);
    CHECK(close_range(3, ~0u, 0) == 0);
    list("after close_range");
    for (int i = 3; i < 70000; i++) close(i);
    list("after closing by force");
    say("next %d", open("/dev/null", O_RDONLY));
    say("dup2 %d", dup2(1, 900));
    say("dup3 %d", dup3(1, 901, O_CLOEXEC));
    say("dupfd %d", fcntl(1, F_DUPFD, 500));
    list("after dup");
    pid_t pid = fork();
    if (!pid) {
        close_range(0, ~0u, 0);
        say("unseen");
        _exit(3);
    }
    int status;
    waitpid(pid, &status, 0);
    say_status("child without descriptors", status);
    pid = fork();
    if (!pid) {
        for (int i = 0; i < 70000; i++) if (i != 1) close(i);
        execl("/bin/echo", "echo", "still", "works", NULL);
        _exit(1);
    }
    waitpid(pid, &status, 0);
    say_status("exec after closing", status);
    limit.rlim_cur = 20;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = -1, fd;
    close_range(3, ~0u, 0);
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
    say("limit reached at %d, errno %d", last, errno == EMFILE);
    pid = fork();
    if (!pid) { execl("/bin/echo", "echo", "full table", NULL); _exit(1); }
    waitpid(pid, &status, 0);
    say_status("exec with a full table", status);
}
