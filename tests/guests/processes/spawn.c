// posix_spawn: file actions, attributes, error reports, spawnp; popen and system.
// variants: pie static musl
#include "guest.h"
#include <spawn.h>
extern char **environ;
int main(void) {
    pid_t pid;
    int status, r;
    char *echo[] = {"echo", "hello", NULL};
    CHECK(!posix_spawn(&pid, "/bin/echo", NULL, NULL, echo, environ));
    waitpid(pid, &status, 0);
    say_status("echo", status);
    say("missing %d", posix_spawn(&pid, "/no/such", NULL, NULL, echo, environ) == ENOENT);
    say("directory %d", posix_spawn(&pid, "/tmp", NULL, NULL, echo, environ) == EACCES);
    say("missing in path %d", posix_spawnp(&pid, "no-such-program", NULL, NULL, echo, environ) == ENOENT);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_addclose(&actions, 0);
    char *ls[] = {"sh", "-c", "echo to file; echo err >&2; read x || echo no stdin", NULL};
    CHECK(!posix_spawnp(&pid, "sh", &actions, NULL, ls, environ));
    waitpid(pid, &status, 0);
    say_status("sh", status);
    char text[256] = {0};
    int fd = open("out", O_RDONLY);
    read(fd, text, 255);
    close(fd);
    say("out: %d %d", strstr(text, "to file") != NULL, strstr(text, "no stdin") != NULL);
    unlink("out");
    posix_spawn_file_actions_t bad;
    posix_spawn_file_actions_init(&bad);
    posix_spawn_file_actions_addopen(&bad, 5, "/no/such/file", O_RDONLY, 0);
    r = posix_spawnp(&pid, "sh", &bad, NULL, ls, environ);
    say("bad action %d", r == ENOENT);
    posix_spawnattr_t attr;
    posix_spawnattr_init(&attr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    posix_spawnattr_setsigmask(&attr, &set);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    char *mask[] = {"grep", "SigBlk", "/proc/self/status", NULL};
    CHECK(!posix_spawnp(&pid, "grep", NULL, &attr, mask, environ));
    waitpid(pid, &status, 0);
    say_status("attributes", status);
    say("system %d", WEXITSTATUS(system("exit 6")));
    say("system missing %d", WEXITSTATUS(system("no-such-command-here 2>/dev/null")));
    FILE *p = popen("echo from popen; exit 2", "r");
    CHECK(fgets(text, 256, p));
    printf("%s", text);
    fflush(stdout);
    say("pclose %d", WEXITSTATUS(pclose(p)));
    p = popen("cat", "w");
    fprintf(p, "to popen\n");
    say("pclose %d", pclose(p));
}
