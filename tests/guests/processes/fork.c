// fork: private memory, shared file offsets, many children, from a thread, nested, atfork handlers.
// variants: pie static musl
#include "guest.h"
static int data = 1;
static void before(void) { say("prepare"); }
static void in_parent(void) { say("parent"); }
static void *in_thread(void *u) {
    pid_t pid = fork();
    if (!pid) _exit(data + 10);
    int status;
    waitpid(pid, &status, 0);
    say_status("from a thread", status);
    return u;
}
int main(void) {
    int status;
    pid_t pid = fork();
    if (!pid) { data = 2; _exit(data); }
    waitpid(pid, &status, 0);
    say_status("child", status);
    say("data %d", data);
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(write(fd, "abcdef", 6) == 6);
    lseek(fd, 0, SEEK_SET);
    pid = fork();
    if (!pid) { lseek(fd, 3, SEEK_SET); _exit(0); }
    waitpid(pid, NULL, 0);
    char c;
    CHECK(read(fd, &c, 1) == 1);
    say("shared offset %c", c);
    unlink("file");
    int sum = 0;
    for (int i = 0; i < 100; i++) if (!(pid = fork())) _exit(i);
    while (wait(&status) > 0) sum += WEXITSTATUS(status);
    say("sum %d", sum);
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, in_thread, NULL));
    pthread_join(t, NULL);
    // A chain of children, each waits for the next.
    int depth = 0;
    while (depth < 20 && !(pid = fork())) depth++;
    if (depth < 20) { waitpid(pid, &status, 0); if (depth) _exit(WEXITSTATUS(status) + 1); say("chain %d", WEXITSTATUS(status)); }
    else _exit(0);
    pid = fork();
    if (!pid) { // grandchild reparented, seen by its pipe closing
        if (!fork()) _exit(0);
        _exit(5);
    }
    waitpid(pid, &status, 0);
    say_status("orphaning", status);
    pthread_atfork(before, in_parent, NULL);
    pid = fork();
    if (!pid) _exit(0);
    waitpid(pid, NULL, 0);
}
