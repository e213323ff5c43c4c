// Pipes, sockets and polls inside the process: who reads is behind who wrote, in a replay too.
// variants: pie
// flags: -pthread
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define ROUNDS 300
static int pipes[2], pair[2];
static int handed[ROUNDS]; /* without a lock: the pipe is one */
static unsigned hash, pieces; /* of one thread each */

static void *writer(void *argument) {
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        handed[i] = i * 3;
        char byte = i;
        if (write(pipes[1], &byte, 1) != 1) return (void *)1;
    }
    close(pipes[1]);
    return NULL;
}

static void *reader(void *argument) {
    (void)argument;
    char byte;
    int i = 0;
    for (;;) {
        struct pollfd ready = {.fd = pipes[0], .events = POLLIN};
        poll(&ready, 1, -1);
        if (read(pipes[0], &byte, 1) != 1) break;
        hash = hash * 31 + handed[i++];
        struct iovec parts[2] = {{&byte, 1}, {"x", 1}};
        if (writev(pair[0], parts, 2) != 2) return (void *)1;
    }
    shutdown(pair[0], SHUT_WR);
    return NULL;
}

static void *last(void *argument) {
    (void)argument;
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5};
    epoll_ctl(epoll, EPOLL_CTL_ADD, pair[1], &event);
    char buffer[64];
    long total = 0, got;
    do {
        if (epoll_wait(epoll, &event, 1, -1) != 1 || event.data.u64 != 5) return (void *)1;
        got = recv(pair[1], buffer, sizeof buffer, 0);
        total += got;
        /* How much comes at once is a matter of timing. */
        pieces = pieces * 31 + got;
    } while (got > 0);
    close(epoll);
    return (void *)(total == 2 * ROUNDS ? 0L : 1L);
}

int main(void) {
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
    pthread_t threads[3];
    void *result;
    pthread_create(&threads[0], NULL, writer, NULL);
    pthread_create(&threads[1], NULL, reader, NULL);
    pthread_create(&threads[2], NULL, last, NULL);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &result);
        if (result) return 2;
    }
    struct timeval now;
    gettimeofday(&now, NULL);
    printf("%u %u %ld.%06ld %d\n", hash, pieces, (long)now.tv_sec, (long)now.tv_usec, (int)getpid());
    int file = open("file", O_CREAT | O_RDWR, 0600);
    int copy = dup(1);
    if (write(file, "text", 4) != 4 || pread(file, &now, 4, 0) != 4) return 3;
    if (write(copy, "by a copy\n", 10) != 10) return 4;
    close(copy);
    close(file);
    unlink("file");
    return 0;
}
