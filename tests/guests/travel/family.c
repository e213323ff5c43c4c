// Children: one that only exits, one that executes another program, a vfork.
// variants: debug
#include "guest.h"
static int value = 1;

static void child(int number) {
    value = number * 10;  // MARK: child
    say("child %d", value);
    _exit(number);
}

int main(void) {
    int status;
    pid_t pid = fork();  // MARK: fork
    if (pid == 0) child(3);
    CHECK(waitpid(pid, &status, 0) == pid);
    say_status("first", status);
    pid = fork();
    if (pid == 0) {
        value = 77;
        execl("/bin/sh", "sh", "-c", "echo executed; exit 4", (char *)NULL);  // MARK: exec
        _exit(96);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    say_status("second", status);
    pid = vfork();
    if (pid == 0) _exit(5);
    CHECK(waitpid(pid, &status, 0) == pid);
    say_status("third", status);
    say("value %d", value);  // MARK: end
    return 0;
}
