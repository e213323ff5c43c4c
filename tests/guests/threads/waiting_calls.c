// Calls that wait while another thread runs: what the kernel gives them arrives whole, nothing else
// in memory is touched, and bad pointers fail as they do without threads.
// variants: pie static musl
#define _GNU_SOURCE
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static pthread_t waiter;
static volatile int tid;
static void handler(int sig) { (void)sig; }

// Until the other thread sleeps in its call; a moment early is no harm.
static void asleep(void) {
    while (!tid) sched_yield();
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (int i = 0; i < 200; i++) {
        FILE *f = fopen(path, "r");
        CHECK(f && fgets(text, sizeof text, f));
        fclose(f);
        if (strrchr(text, ')')[2] == 'S') return;
        sched_yield();
    }
}

static void start(void *(*f)(void *), void *arg) {
    tid = 0;
    CHECK(!pthread_create(&waiter, NULL, f, arg));
    asleep();
}
static void end(void) { CHECK(!pthread_join(waiter, NULL)); }
static void here(void) { tid = gettid(); }

static void untouched(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) CHECK(p[i] == 'p');
}

static void *reads(void *fd) {
    char buffer[100];
    memset(buffer, 'p', sizeof buffer);
    here();
    CHECK(read(*(int *)fd, buffer, sizeof buffer) == 5);
    CHECK(!memcmp(buffer, "hello", 5));
    untouched(buffer + 5, 95);
    return NULL;
}

static void *reads_vectors(void *fd) {
    char a[3], b[50];
    memset(b, 'p', sizeof b);
    struct iovec v[3] = {{a, 3}, {NULL, 0}, {b, 50}};
    here();
    CHECK(readv(*(int *)fd, v, 3) == 5);
    CHECK(!memcmp(a, "hel", 3) && !memcmp(b, "lo", 2));
    untouched(b + 2, 48);
    return NULL;
}

static char *volatile nowhere = (char *)8;
static void *reads_badly(void *fd) {
    here();
    CHECK(read(*(int *)fd, nowhere, 5) == -1 && errno == EFAULT);
    // The data is still there; a buffer that ends in nowhere takes what fits.
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(!munmap(page + 4096, 4096));
    CHECK(read(*(int *)fd, page + 4091, 5) == 5 && !memcmp(page + 4091, "hello", 5));
    return NULL;
}

static void *receives(void *fd) {
    struct sockaddr_un name;
    char data[20], control[64];
    memset(&name, 'p', sizeof name);
    memset(data, 'p', sizeof data);
    memset(control, 'p', sizeof control);
    struct iovec v = {data, sizeof data};
    struct msghdr m = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &v, .msg_iovlen = 1,
                       .msg_control = control, .msg_controllen = sizeof control, .msg_flags = 0x7777};
    here();
    CHECK(recvmsg(*(int *)fd, &m, 0) == 5);
    CHECK(!memcmp(data, "hello", 5));
    untouched(data + 5, 15);
    CHECK(m.msg_name == &name && m.msg_iov == &v && m.msg_control == control);
    CHECK(m.msg_flags == 0 && m.msg_controllen == CMSG_SPACE(sizeof(int)));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)));
    int got;
    memcpy(&got, CMSG_DATA(c), sizeof got);
    CHECK(fcntl(got, F_GETFD) >= 0 && !close(got));
    untouched(control + CMSG_SPACE(sizeof(int)), 64 - CMSG_SPACE(sizeof(int)));
    return NULL;
}

static void *polls(void *fd) {
    struct pollfd p[2] = {{*(int *)fd, POLLIN, 0x5555}, {-1, POLLIN, 0x5555}};
    here();
    CHECK(poll(p, 2, -1) == 1 && p[0].revents == POLLIN && p[1].revents == 0);
    return NULL;
}

static void *selects(void *fd) {
    fd_set set;
    struct timeval left = {1000, 0};
    FD_ZERO(&set);
    FD_SET(*(int *)fd, &set);
    here();
    CHECK(syscall(SYS_select, *(int *)fd + 1, &set, NULL, NULL, &left) == 1 && FD_ISSET(*(int *)fd, &set));
    CHECK(left.tv_sec >= 990 && left.tv_sec <= 999);
    return NULL;
}

static void *waits_for_events(void *fd) {
    int e = epoll_create1(0);
    struct epoll_event in = {.events = EPOLLIN, .data.u64 = 77}, out[4];
    memset(out, 'p', sizeof out);
    CHECK(!epoll_ctl(e, EPOLL_CTL_ADD, *(int *)fd, &in));
    here();
    CHECK(epoll_wait(e, out, 4, -1) == 1 && out[0].events == EPOLLIN && out[0].data.u64 == 77);
    untouched((char *)&out[1], 3 * sizeof out[0]);
    close(e);
    return NULL;
}

static void *sleeps(void *unused) {
    (void)unused;
    struct timespec time = {1000, 0}, left = {7, 7};
    here();
    CHECK(nanosleep(&time, &left) == -1 && errno == EINTR);
    // The kernel may let it sleep a little longer than was asked for, and counts that too.
    CHECK(left.tv_sec >= 990 && left.tv_sec <= 1000);
    struct timeval rest = {1000, 0};
    here();
    CHECK(syscall(SYS_select, 0, NULL, NULL, NULL, &rest) == -1 && errno == EINTR);
    CHECK(rest.tv_sec >= 990 && rest.tv_sec <= 1000);
    return NULL;
}

static void *takes_message(void *queue) {
    struct { long type; char text[40]; } m;
    memset(&m, 'p', sizeof m);
    here();
    CHECK(msgrcv(*(int *)queue, &m, sizeof m.text, 0, 0) == 5);
    CHECK(m.type == 3 && !memcmp(m.text, "hello", 5));
    untouched(m.text + 5, 35);
    return NULL;
}

static void *waits_for_child(void *child) {
    siginfo_t info;
    memset(&info, 'p', sizeof info);
    here();
    CHECK(!waitid(P_PID, *(int *)child, &info, WEXITED));
    CHECK(info.si_pid == *(int *)child && info.si_status == 4 && info.si_code == CLD_EXITED);
    return NULL;
}

static char big[1 << 20];
static void *writes(void *fd) {
    memset(big, 'b', sizeof big);
    here();
    CHECK(write(*(int *)fd, big, sizeof big) == sizeof big);
    return NULL;
}

int main(void) {
    int p[2], s[2];
    CHECK(!pipe(p) && !socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    void *(*readers[])(void *) = {reads, reads_vectors, reads_badly};
    for (int i = 0; i < 3; i++) {
        start(readers[i], &p[0]);
        CHECK(write(p[1], "hello", 5) == 5);
        end();
    }
    say("reads");

    start(receives, &s[0]);
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {"hello", 5};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &p[0], sizeof(int));
    CHECK(sendmsg(s[1], &m, 0) == 5);
    end();
    say("messages");

    void *(*watchers[])(void *) = {polls, selects, waits_for_events};
    for (int i = 0; i < 3; i++) {
        char byte;
        start(watchers[i], &p[0]);
        CHECK(write(p[1], "x", 1) == 1);
        end();
        CHECK(read(p[0], &byte, 1) == 1);
    }
    say("readiness");

    struct sigaction action = {.sa_handler = handler};
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    start(sleeps, NULL);
    tid = 0;
    // A signal that comes between two sleeps ends neither: send until the thread has ended.
    while (pthread_tryjoin_np(waiter, NULL) == EBUSY) {
        pthread_kill(waiter, SIGUSR1);
        usleep(1000);
    }
    say("time left");

    int queue = msgget(IPC_PRIVATE, 0600);
    CHECK(queue >= 0);
    start(takes_message, &queue);
    struct { long type; char text[5]; } out = {3, "hello"};
    CHECK(!msgsnd(queue, &out, 5, 0));
    end();
    CHECK(!msgctl(queue, IPC_RMID, NULL));
    say("queues");

    int go[2];
    CHECK(!pipe(go));
    int child = fork();
    if (child == 0) {
        char byte;
        _exit(read(go[0], &byte, 1) == 1 ? 4 : 5);
    }
    start(waits_for_child, &child);
    CHECK(write(go[1], "x", 1) == 1);
    end();
    say("children");

    start(writes, &p[1]);
    static char in[4096];
    size_t got = 0;
    while (got < sizeof big) {
        ssize_t n = read(p[0], in, sizeof in);
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++) CHECK(in[i] == 'b');
        got += n;
    }
    end();
    say("writes");
    return 0;
}
