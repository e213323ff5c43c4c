// What a child inherits is the forking thread's: name, processors, nice value; also where threads differ.
#include "guest.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
static void look(const char *what) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    say("%s: %s, processors %s, nice %d", what, name, CPU_COUNT(&set) == 1 ? "one" : "all",
        getpriority(PRIO_PROCESS, 0));
}
static void child(const char *what) {
    pid_t pid = fork();
    if (!pid) {
        look(what);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}
static void *thread(void *unused) {
    prctl(PR_SET_NAME, "worker");
    cpu_set_t set, one;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &set)) CPU_SET(cpu, &one);
    if (CPU_COUNT(&set) > 1) CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 7) == 0);
    child("by a thread");
    return unused;
}
int main(void) {
    prctl(PR_SET_NAME, "main");
    setpriority(PRIO_PROCESS, 0, 3);
    child("alone");
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0);
    pthread_join(other, NULL);
    child("by the first");
}
