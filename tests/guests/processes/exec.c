// exec from the main thread and from another one: arguments, environment, descriptors, failures,
// fexecve, and that other threads are gone afterwards.
// variants: pie static musl
// status: exit 4
#include "guest.h"
#include <dirent.h>
static char *self;
static void *spin(void *u) { for (;;) __asm__ volatile("pause"); return u; }
static void *exec_here(void *u) {
    char *argv[] = {"renamed", "stage3", NULL}, *env[] = {"ONLY=this", "GUEST=1", NULL};
    execve(self, argv, env);
    return u;
}
static int threads(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}
int main(int argc, char **argv, char **env) {
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n] = 0;
    self = path;
    const char *stage = argc > 1 ? argv[1] : "";
    if (!*stage) {
        char *bad[] = {"x", NULL};
        errno = 0; execv("/no/such", bad); say("missing %d", errno == ENOENT);
        errno = 0; execv("/etc/passwd", bad); say("not executable %d", errno == EACCES);
        errno = 0; execv("/tmp", bad); say("directory %d", errno == EACCES);
        errno = 0; execve(self, (char **)8, NULL); say("bad argv %d", errno == EFAULT);
        errno = 0; execlp("no-such-program-at-all", "x", NULL); say("path %d", errno == ENOENT);
        int keep = open("/dev/null", O_RDONLY), lose = open("/dev/null", O_RDONLY | O_CLOEXEC);
        char a[16], b[16];
        sprintf(a, "%d", keep);
        sprintf(b, "%d", lose);
        execl(self, argv[0], "stage2", a, b, "", "last one", NULL);
        return 1;
    }
    if (!strcmp(stage, "stage2")) {
        say("argc %d '%s' '%s'", argc, argv[4], argv[5]);
        say("kept %d lost %d", fcntl(atoi(argv[2]), F_GETFD) >= 0, fcntl(atoi(argv[3]), F_GETFD) < 0);
        pthread_t t;
        for (int i = 0; i < 3; i++) CHECK(!pthread_create(&t, NULL, spin, NULL));
        pid_t before = getpid();
        char text[32];
        sprintf(text, "%d", before);
        setenv("PID", text, 1);
        CHECK(!pthread_create(&t, NULL, exec_here, NULL));
        pthread_join(t, NULL);
        return 1;
    }
    if (!strcmp(stage, "stage3")) {
        say("argv0 %s, threads %d, leader %d", argv[0], threads(), getpid() == syscall(SYS_gettid));
        for (char **e = env; *e; e++) say("env %s", *e);
        int fd = open(self, O_RDONLY | O_CLOEXEC);
        char *args[] = {"by-fd", "stage4", NULL}, *none[] = {NULL};
        fexecve(fd, args, none);
        say("fexecve errno %d", errno);
        return 1;
    }
    say("%s %s, environment %s", argv[0], argv[1], *env ? "some" : "empty");
    return 4;
}
