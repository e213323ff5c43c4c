// A pipeline of five processes with a megabyte through it, process groups, and SIGPIPE ending it.
// variants: pie static
#include "guest.h"
static uint64_t checksum(int in, int out) {
    static unsigned char buffer[7001];
    uint64_t h = 1;
    ssize_t n;
    while ((n = read(in, buffer, sizeof buffer)) > 0) {
        for (ssize_t i = 0; i < n; i++) { h = h * 31 + buffer[i]; buffer[i] ^= 0x55; }
        for (ssize_t done = 0; out >= 0 && done < n;) { ssize_t w = write(out, buffer + done, n - done); if (w <= 0) _exit(8); done += w; }
    }
    return h;
}
int main(void) {
    int in = -1, group = 0;
    for (int stage = 0; stage < 5; stage++) {
        int fds[2];
        CHECK(pipe(fds) == 0);
        pid_t pid = fork();
        if (!pid) {
            setpgid(0, group);
            close(fds[0]);
            if (stage == 0) for (int i = 0; i < 1000000; i += 1000) { char line[1000]; memset(line, i / 1000, 1000); CHECK(write(fds[1], line, 1000) == 1000); }
            else checksum(in, fds[1]);
            _exit(0);
        }
        if (!group) group = pid;
        setpgid(pid, group);
        if (in >= 0) close(in);
        close(fds[1]);
        in = fds[0];
    }
    say("%016lx", checksum(in, -1));
    close(in);
    int status, n = 0;
    while (waitpid(-group, &status, 0) > 0) { CHECK(WIFEXITED(status)); n++; }
    say("children %d", n);
    int fds[2];
    CHECK(pipe(fds) == 0);
    pid_t pid = fork();
    if (!pid) { close(fds[0]); for (;;) write(fds[1], "yes\n", 4); }
    close(fds[1]);
    char c;
    CHECK(read(fds[0], &c, 1) == 1);
    close(fds[0]);
    waitpid(pid, &status, 0);
    say_status("writer", status);
    // A whole group is signalled.
    group = 0;
    for (int i = 0; i < 3; i++) {
        pid = fork();
        if (!pid) { setpgid(0, group); for (;;) pause(); }
        if (!group) group = pid;
        setpgid(pid, group);
    }
    kill(-group, SIGTERM);
    for (n = 0; waitpid(-group, &status, 0) > 0; n++) CHECK(WTERMSIG(status) == SIGTERM);
    say("group of %d ended", n);
}
