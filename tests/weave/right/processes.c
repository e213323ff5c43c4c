// Other processes, folders, mapped files and times: all of it is input.
// variants: pie
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    int pipes[2], status, entries = 0;
    char said[10] = "";
    if (pipe(pipes)) return 1;
    pid_t child = fork();
    if (child == 0) {
        if (write(pipes[1], "child", 5) != 5) _exit(1);
        _exit(4);
    }
    if (read(pipes[0], said, 5) != 5) return 2;
    waitpid(child, &status, 0);
    printf("%d said %s and ended with %d\n", (int)child, said, WEXITSTATUS(status));
    printf("%d\n", WEXITSTATUS(system("exit 3")));
    DIR *folder = opendir("/etc");
    while (readdir(folder)) entries++;
    closedir(folder);
    int file = open("/etc/passwd", O_RDONLY);
    char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) return 3;
    printf("%d entries, %.4s at %p\n", entries, mapped, (void *)mapped);
    time_t now = time(NULL);
    srand(now);
    printf("%s%d\n", ctime(&now), rand());
    return 0;
}
