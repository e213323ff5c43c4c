// Forks a child that crashes; then execs itself. Shared memory tells the parent how far the child came.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int step;
volatile int *shared;

__attribute__((noinline)) void crash(volatile int *where) {
    for (step = 0; step < 1000; step++)
        *shared = step;
    *where = step;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        for (step = 0; step < 500; step++)
            ;
        printf("again: %d\n", step);
        return 0;
    }
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0)
        crash((int *)16);
    int status;
    waitpid(child, &status, 0);
    printf("child: signal %d, step %d\n", WTERMSIG(status), *shared);
    fflush(stdout);
    execl(argv[0], argv[0], "again", NULL);
    return 1;
}
