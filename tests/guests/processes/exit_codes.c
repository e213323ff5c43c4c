// Exit status: the low byte only, _exit with buffered output lost, exit flushing, quick_exit.
// variants: pie static
// status: exit 44
#include "guest.h"
static void bye(void) { printf("flushed at exit\n"); }
int main(void) {
    int codes[] = {0, 1, 255, 256, 300, -1}, status;
    for (int i = 0; i < 6; i++) {
        pid_t pid = fork();
        if (!pid) _exit(codes[i]);
        waitpid(pid, &status, 0);
        say_status("code", status);
    }
    pid_t pid = fork();
    if (!pid) { printf("lost"); _exit(2); }
    waitpid(pid, &status, 0);
    pid = fork();
    if (!pid) { printf("flushed\n"); exit(2); }
    waitpid(pid, &status, 0);
    pid = fork();
    if (!pid) { syscall(SYS_exit, 12); }
    waitpid(pid, &status, 0);
    say_status("exit syscall", status);
    atexit(bye);
    return 300;
}
