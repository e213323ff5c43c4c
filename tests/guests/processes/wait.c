// wait in all its forms: wait3/4 with usage, waitid with every flag, by group, WNOHANG, WNOWAIT, errors.
// variants: pie static
// stops: own
#include "guest.h"
#include <sys/resource.h>
int main(void) {
    int status;
    siginfo_t info;
    say("no children %d", wait(&status) == -1 && errno == ECHILD);
    int go[2];
    CHECK(pipe(go) == 0);
    pid_t pid = fork();
    if (!pid) { char c; close(go[1]); read(go[0], &c, 1); _exit(21); }
    say("nohang %d", waitpid(pid, &status, WNOHANG));
    memset(&info, 0xff, sizeof info);
    CHECK(waitid(P_PID, pid, &info, WEXITED | WNOHANG) == 0);
    say("waitid nohang pid %d", info.si_pid);
    close(go[1]);
    CHECK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0);
    say("nowait %d %d", info.si_code == CLD_EXITED, info.si_status);
    struct rusage usage;
    CHECK(wait4(pid, &status, 0, &usage) == pid);
    say_status("wait4", status);
    CHECK(usage.ru_maxrss > 0);
    say("again %d", waitpid(pid, &status, 0) == -1 && errno == ECHILD);
    pid = fork();
    if (!pid) { setpgid(0, 0); _exit(1); }
    setpgid(pid, pid);
    pid_t other = fork();
    if (!other) { setpgid(0, pid); _exit(2); }
    setpgid(other, pid);
    int sum = 0;
    while (waitpid(-pid, &status, 0) > 0) sum += WEXITSTATUS(status);
    say("group %d", sum);
    int gate[2]; // once it has ended, nothing tells that it was continued
    CHECK(pipe(gate) == 0);
    pid = fork();
    if (!pid) { char go; close(gate[1]); raise(SIGSTOP); _exit(read(gate[0], &go, 1) == 0 ? 7 : 8); }
    CHECK(waitid(P_ALL, 0, &info, WSTOPPED) == 0);
    say("stopped %d %d", info.si_code == CLD_STOPPED, info.si_pid == pid);
    kill(pid, SIGCONT);
    CHECK(waitid(P_PID, pid, &info, WCONTINUED) == 0);
    say("continued %d", info.si_code == CLD_CONTINUED);
    close(gate[1]);
    CHECK(wait3(&status, 0, NULL) == pid);
    say_status("wait3", status);
    pid = fork();
    if (!pid) { raise(SIGKILL); _exit(0); }
    CHECK(waitid(P_ALL, 0, &info, WEXITED) == 0);
    say("killed %d %d", info.si_code == CLD_KILLED, info.si_status);
    say("bad options %d", waitid(P_ALL, 0, &info, 0) == -1 && errno == EINVAL);
    // A thread's child can be waited for by another thread.
    getrusage(RUSAGE_CHILDREN, &usage);
    CHECK(usage.ru_maxrss > 0);
    say("done");
}
