// A process ends while its threads wait in all kinds of calls, compute, spin, fork, vfork and come and go:
// five times, by exit_group from a thread, by a signal, by the main thread's return.
// variants: pie static
// flags: -O1 -pthread
#include "guest.h"
#include <poll.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
extern char **environ;
static int pair[2];
static volatile int started, word;
static volatile uint64_t computed;
static void *nothing(void *arg) { return arg; }
static void come_and_go(void) {
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) == 0) pthread_join(thread, NULL);
    }
}
static void make_children(int forking) {
    for (;;) {
        pid_t pid;
        char *args[] = {"true", NULL};
        if (forking) {
            pid = fork();
            if (pid == 0) _exit(0);
        } else if (posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ) != 0) continue;
        waitpid(pid, NULL, 0);
    }
}
static void *busy(void *number) {
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    char byte;
    struct pollfd poll_for = {pair[0], POLLIN, 0};
    struct epoll_event event;
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    switch ((intptr_t)number) {
    case 0: CHECK(read(pair[0], &byte, 1) == 1); break;
    case 1: poll(&poll_for, 1, -1); break;
    case 2: epoll_wait(epoll_create1(0), &event, 1, -1); break;
    case 3: sigwaitinfo(&usr2, NULL); break;
    case 4: syscall(SYS_futex, &word, 0, 0, NULL); break;
    case 5: for (;;) computed = computed * 3 + 1;
    case 6: for (;;) __builtin_ia32_pause();
    case 7: for (;;) sched_yield();
    case 8: come_and_go(); break;
    case 9: make_children(0); break;
    case 10: make_children(1); break;
    case 11: for (;;) usleep(100);
    default: for (;;) clock_gettime(CLOCK_MONOTONIC, &(struct timespec){0});
    }
    return NULL;
}
static void *end(void *way) {
    usleep(20000);
    switch ((intptr_t)way) {
    case 0: exit(3);
    case 1: _exit(4);
    case 2: raise(SIGTERM); break;
    case 3: kill(getpid(), SIGKILL); break;
    }
    return NULL;
}
static void live(intptr_t way) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pthread_t thread;
    for (intptr_t n = 0; n < 13; n++) CHECK(pthread_create(&thread, NULL, busy, (void *)n) == 0);
    while (started < 13) sched_yield();
    if (way == 4) return;
    CHECK(pthread_create(&thread, NULL, end, (void *)way) == 0);
    pause();
}
int main(void) {
    for (intptr_t ways = 0; ways < 5; ways++) {
        pid_t pid = fork();
        if (pid == 0) {
            live(ways);
            return 5;
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        say_status("child", status);
    }
}
