// The parent only says that its child failed.
// kind: child
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int *cells;
static void work(int n) {
    if (n == 2) cells = NULL; // CAUSE
    cells[n] = n;
}
int main(void) {
    cells = calloc(8, sizeof *cells);
    for (int n = 0; n < 4; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            work(n);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        if (status != 0) {
            fprintf(stderr, "a child failed\n");
            return 1;
        }
    }
    return 0;
}
