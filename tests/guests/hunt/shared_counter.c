// Two processes count in shared memory.
#include "bug.h"
#include <sys/mman.h>
#include <sys/wait.h>
int main(void) {
    volatile int *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    for (int i = 0; i < 20; i++) {
        work(200);
        int before = *count;
        *count = before + 1;
    }
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    assert(*count == 40);
    return 0;
}
