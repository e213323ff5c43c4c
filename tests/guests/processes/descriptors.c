// Descriptors at numbers of every size, limits raised and lowered, everything closed in between: children are
// made and start programs all the same, and nothing is open that the program didn't open.
#include "guest.h"
#include <dirent.h>
#include <sys/resource.h>

static char self[4096];

static void child(const char *when) {
    pid_t pid = fork();
    if (!pid) {
        execl(self, self, "child", NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    pid = vfork();
    if (!pid) {
        execl(self, self, "child", NULL);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    say("%s: children ran", when);
}

static void limit(rlim_t soft) {
    struct rlimit both;
    CHECK(getrlimit(RLIMIT_NOFILE, &both) == 0);
    both.rlim_cur = soft;
    CHECK(setrlimit(RLIMIT_NOFILE, &both) == 0);
}

static int open_above(int least) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) {
        int fd = atoi(entry->d_name);
        count += entry->d_name[0] != '.' && fd >= least && fd != dirfd(folder);
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv) {
    if (argc > 1) return 7;
    self[readlink("/proc/self/exe", self, sizeof self - 1)] = 0;
    struct rlimit both;
    CHECK(getrlimit(RLIMIT_NOFILE, &both) == 0 && both.rlim_max >= 1024);
    limit(1024);
    say("above 2: %d", open_above(3));
    // Every number there is.
    for (int fd = 3; fd < 1024; fd++) CHECK(dup2(2, fd) == fd && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
    errno = 0;
    say("one more: %d", dup(2) == -1 && errno == EMFILE);
    errno = 0;
    say("behind the limit: %d", dup2(2, 1024) == -1 && errno == EBADF);
    for (int fd = 3; fd < 1024; fd++) CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    child("all used");
    closefrom(3);
    say("closed: %d", open_above(3));
    child("all closed");
    // Raised: what was behind the limit before is the program's now.
    limit(both.rlim_max < 1100 ? both.rlim_max : 1100);
    CHECK(getrlimit(RLIMIT_NOFILE, &both) == 0);
    for (int fd = 1000; fd < (int)both.rlim_cur; fd++) CHECK(dup3(2, fd, O_CLOEXEC) == fd);
    child("raised");
    for (int fd = 1000; fd < (int)both.rlim_cur; fd++) CHECK(close(fd) == 0);
    CHECK(fcntl(2, F_DUPFD, 1020) == 1020);
    CHECK(fcntl(2, F_DUPFD_CLOEXEC, 1020) == 1021);
    limit(30);
    for (int fd = 3; fd < 30; fd++) CHECK(dup3(2, fd, O_CLOEXEC) == fd);
    child("lowered");
    close(3);
    say("above 29: %d", open_above(30));
}
