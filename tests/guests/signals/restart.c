// EINTR and SA_RESTART, call by call: read, nanosleep, select, poll, futex-based waits,
// waitpid, accept, sleep that reports what is left. A second thread sends the signal once
// the first is seen blocked in the call.
// variants: pie static
#include "guest.h"
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
static volatile int hits;
static int fds[2], stop_fds[2];
static volatile int call_started, call_done;
static pthread_t main_thread;
static void hit(int sig) { (void)sig; hits++; }
static void install(int flags) {
    struct sigaction a = {.sa_handler = hit, .sa_flags = flags};
    sigaction(SIGUSR1, &a, NULL);
}
// Sends signals until the call is over; with SA_RESTART, after some hits, lets it finish.
static int finish_by_write;
static void *sender(void *unused) {
    (void)unused;
    while (!call_started) sched_yield();
    int sent_data = 0;
    while (!call_done) {
        pthread_kill(main_thread, SIGUSR1);
        struct timespec t = {0, 2000000};
        nanosleep(&t, NULL);
        if (finish_by_write && hits >= 3 && !sent_data) {
            CHECK(write(fds[1], "x", 1) == 1);
            sent_data = 1;
        }
    }
    return NULL;
}
static sem_t sem;
static long do_call(int which) {
    char c;
    struct timespec t = {1000, 0}, left = {0, 0};
    struct pollfd p = {fds[0], POLLIN, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fds[0], &set);
    switch (which) {
    case 0: return read(fds[0], &c, 1);
    case 1: { long r = nanosleep(&t, &left); int e = errno; CHECK(left.tv_sec > 900); errno = e; return r; }
    case 2: return poll(&p, 1, -1);
    case 3: return select(fds[0] + 1, &set, NULL, NULL, NULL);
    case 4: return sem_wait(&sem);
    case 5: return clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &left) ? (errno = EINTR, -1) : 0;
    case 6: { int ep = epoll_create1(0); struct epoll_event e; long r = epoll_wait(ep, &e, 1, -1); int er = errno; close(ep); errno = er; return r; }
    case 7: return pause();
    }
    return 0;
}
static void try(const char *name, int which, int flags, int finish) {
    install(flags);
    hits = call_started = call_done = 0;
    finish_by_write = finish;
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, sender, NULL));
    call_started = 1;
    errno = 0;
    long r = do_call(which);
    int error = errno;
    call_done = 1;
    pthread_join(t, NULL);
    if (r > 0) {
        // take away what may be left
        char c;
        fcntl(fds[0], F_SETFL, O_NONBLOCK);
        read(fds[0], &c, 1);
        fcntl(fds[0], F_SETFL, 0);
    }
    say("%s%s: %ld %s hits %s", name, flags ? " restart" : "", r, r < 0 ? strerror(error) : "-", hits >= (finish ? 3 : 1) ? "ok" : "few");
}
int main(void) {
    CHECK(pipe(fds) == 0 && pipe(stop_fds) == 0);
    sem_init(&sem, 0, 0);
    main_thread = pthread_self();
    const char *names[] = {"read", "nanosleep", "poll", "select", "sem_wait", "clock_nanosleep", "epoll_wait", "pause"};
    for (int i = 0; i < 8; i++) try(names[i], i, 0, 0);
    try("read", 0, SA_RESTART, 1);
    // These are never restarted, whatever the flag.
    try("nanosleep", 1, SA_RESTART, 0);
    try("poll", 2, SA_RESTART, 0);
    try("select", 3, SA_RESTART, 0);
    try("epoll_wait", 6, SA_RESTART, 0);
    try("pause", 7, SA_RESTART, 0);
    // waitpid: interrupted, then restarted until the child is let go.
    install(SA_RESTART);
    hits = 0;
    int go[2];
    CHECK(pipe(go) == 0);
    pid_t parent = getpid(), pid = fork();
    if (!pid) {
        char c;
        for (int i = 0; i < 5; i++) { kill(parent, SIGUSR1); struct timespec t = {0, 2000000}; nanosleep(&t, NULL); }
        (void)c;
        _exit(4);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    say_status("waitpid restarted", status);
}
