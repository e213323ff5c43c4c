// A daemon: double fork, new session, closed descriptors; reports through a FIFO.
// variants: pie static
#include "guest.h"
#include <sys/stat.h>
int main(void) {
    CHECK(mkfifo("report", 0600) == 0);
    pid_t me = getpid();
    char here[4096];
    CHECK(getcwd(here, sizeof here));
    pid_t pid = fork();
    if (!pid) {
        if (daemon(1, 0)) _exit(1);
        char text[64];
        int fd = open("report", O_WRONLY);
        int n = snprintf(text, sizeof text, "session %d parent %d stdin %d\n", getsid(0) == getpid() || getsid(0) != 0, getppid() != me, isatty(0));
        CHECK(write(fd, text, n) == n);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    say_status("launcher", status);
    char text[64];
    int fd = open("report", O_RDONLY);
    ssize_t n = read(fd, text, sizeof text);
    CHECK(n > 0 && write(1, text, n) == n);
    unlink("report");
}
