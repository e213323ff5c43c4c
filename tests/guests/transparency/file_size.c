// Under a limit on the size of files only the program's own writes count: it starts, execs and
// reads /proc/self/maps all the same.
#include "guest.h"
#include <sys/resource.h>
static void again(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    char line[1024];
    int stack = 0;
    while (fgets(line, sizeof line, maps)) stack += strstr(line, "[stack]") != NULL;
    dprintf(1, "stack %d", stack);
}
int main(int argc, char **argv) {
    if (argc > 1) {
        again();
        return 0;
    }
    for (int size = 0; size < 2; size++) {
        int ends[2], status;
        CHECK(pipe(ends) == 0);
        pid_t pid = fork();
        if (!pid) {
            struct rlimit limit = {size, size};
            CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
            CHECK(dup2(ends[1], 1) == 1);
            execl("/proc/self/exe", argv[0], "again", NULL);
            _exit(1);
        }
        close(ends[1]);
        char text[100] = "";
        CHECK(read(ends[0], text, sizeof text - 1) >= 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        say("%s", text);
        say_status("after exec", status);
        pid = fork();
        if (!pid) {
            struct rlimit limit = {size, size};
            CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
            int fd = open("grows", O_WRONLY | O_CREAT, 0600);
            _exit(write(fd, "xx", 2));
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        say_status("own write", status);
        unlink("grows");
    }
}
