// The core-dump bit in the wait status when core files are allowed.
// variants: pie static
#include "guest.h"
#include <dirent.h>
#include <sys/resource.h>
int main(void) {
    int sigs[] = {SIGSEGV, SIGQUIT, SIGABRT, SIGTERM};
    for (int i = 0; i < 4; i++) {
        pid_t pid = fork();
        if (!pid) {
            struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
            setrlimit(RLIMIT_CORE, &limit);
            if (sigs[i] == SIGSEGV) *(volatile int *)8 = 1;
            raise(sigs[i]);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        say_status("died", status);
    }
    DIR *dir = opendir(".");
    for (struct dirent *e; (e = readdir(dir));) if (!strncmp(e->d_name, "core", 4)) unlink(e->d_name);
}
