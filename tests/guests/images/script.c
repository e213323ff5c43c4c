// Executes a #! script, whose interpreter is this program itself, and one with sh.
// variants: pie
#include "guest.h"
static void make(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}
static void run(char **argv) {
    int status;
    pid_t pid = fork();
    if (!pid) { execv(argv[0], argv); say("%s: errno %d", argv[0], errno); _exit(1); }
    waitpid(pid, &status, 0);
    say_status(argv[0], status);
}
int main(int argc, char **argv) {
    if (argc > 1) {
        for (int i = 1; i < argc; i++) say("argv[%d] %s", i, argv[i]);
        return 5;
    }
    char self[4096], text[5000];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n] = 0;
    snprintf(text, sizeof text, "#!%s  two words \nrest\n", self);
    make("one.x", text);
    make("two.x", "#!/bin/sh\necho shell $0 $1\nexit 3\n");
    make("three.x", "#!/no/such/interpreter\n");
    make("four.x", "no magic here\n");
    make("five.x", "#!./one.x nested\n");
    run((char *[]){"./one.x", "arg", NULL});
    run((char *[]){"./two.x", "arg", NULL});
    run((char *[]){"./three.x", NULL});
    run((char *[]){"./four.x", NULL});
    run((char *[]){"./five.x", "deep", NULL});
}
