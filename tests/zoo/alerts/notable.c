// Everything notable at once; ALERT marks what clew alerts must tell, and nothing else is.
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int seen;

static void on_signal(int signo) { seen = signo; } // ALERT signal

int main(void) {
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    // What everybody gets now and then isn't notable.
    if (access("/nowhere", R_OK) == 0) return 9;
    if (close(77) == 0) return 9; // ALERT failed_call
    pid_t child = fork(); // ALERT child
    if (child == 0) _exit(3);
    int status = 0;
    if (waitpid(child, &status, 0) != child) return 9;
    assert(status == 0); // ALERT assertion, and the signal of its abort
    return 0;
}
