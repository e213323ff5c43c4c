// Five hundred threads pass messages on: by System V and POSIX queues, pipes and sockets; System V and
// POSIX semaphores count them.
// variants: pie static
#include "guest.h"
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
// As few messages as can't fill queues in a circle: then everybody would wait for room.
enum { COUNT = 500, MESSAGES = 20, HOPS = 300, QUEUES = 5, DEPTH = 10 };
struct message {
    int number, hops;
    unsigned long sum;
};
struct sysv {
    long type;
    struct message m;
};
static int queues[QUEUES], in[COUNT], out[COUNT], semaphores;
static mqd_t posix[COUNT];
static sem_t over;
static unsigned long total, passed[4], results[MESSAGES];

static void put(int to, struct message *m) {
    switch (to % 4) {
    case 0: {
        struct sysv packed = {to + 1, *m};
        CHECK(msgsnd(queues[to / 4 % QUEUES], &packed, sizeof packed.m, 0) == 0);
        break;
    }
    case 1: CHECK(mq_send(posix[to], (char *)m, sizeof *m, m->number % 3) == 0); break;
    case 2: CHECK(write(out[to], m, sizeof *m) == sizeof *m); break;
    case 3: {
        struct iovec parts[2] = {{m, 3}, {(char *)m + 3, sizeof *m - 3}};
        struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
        CHECK(sendmsg(out[to], &header, 0) == sizeof *m);
    }
    }
}

static void get(int me, struct message *m) {
    switch (me % 4) {
    case 0: {
        struct sysv packed;
        CHECK(msgrcv(queues[me / 4 % QUEUES], &packed, sizeof packed.m, me + 1, 0) == sizeof *m);
        CHECK(packed.type == me + 1);
        *m = packed.m;
        break;
    }
    case 1: {
        struct timespec far = {time(NULL) + 1000, 0};
        unsigned priority = 9;
        CHECK(mq_timedreceive(posix[me], (char *)m, sizeof *m, &priority, &far) == sizeof *m);
        CHECK(m->hops < 0 || priority == (unsigned)m->number % 3);
        break;
    }
    case 2:
        if (me % 8 == 2) {
            struct pollfd one = {in[me], POLLIN, 0};
            CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
        }
        CHECK(read(in[me], m, sizeof *m) == sizeof *m);
        break;
    case 3: CHECK(recv(in[me], m, sizeof *m, MSG_WAITALL) == sizeof *m);
    }
}

static void locked(int by) {
    struct sembuf op = {0, by, 0};
    CHECK(semop(semaphores, &op, 1) == 0);
}

static void *work(void *arg) {
    int me = (long)arg;
    struct message m;
    for (;;) {
        get(me, &m);
        if (m.hops < 0) return (void *)(long)-m.hops;
        m.sum = m.sum * 31 + me;
        locked(-1);
        passed[me % 4]++;
        total += me;
        locked(1);
        if (m.hops-- == 0) {
            results[m.number] = m.sum;
            CHECK(sem_post(&over) == 0);
            continue;
        }
        put((me * 7 + m.number * 13 + m.hops) % COUNT, &m);
    }
}

int main(void) {
    static pthread_t threads[COUNT];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    CHECK(sem_init(&over, 0, 0) == 0);
    CHECK((semaphores = semget(IPC_PRIVATE, 1, 0600)) >= 0);
    for (int i = 0; i < QUEUES; i++) CHECK((queues[i] = msgget(IPC_PRIVATE, 0600)) >= 0);
    for (int i = 0; i < COUNT; i++) {
        int pair[2];
        char name[64];
        struct mq_attr size = {.mq_maxmsg = DEPTH, .mq_msgsize = sizeof(struct message)};
        switch (i % 4) {
        case 1:
            snprintf(name, sizeof name, "/guest-%d-%d", getpid(), i);
            CHECK((posix[i] = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &size)) >= 0);
            CHECK(mq_unlink(name) == 0);
            continue;
        case 2: CHECK(pipe(pair) == 0); break;
        case 3: CHECK(socketpair(AF_UNIX, i % 8 == 3 ? SOCK_STREAM : SOCK_SEQPACKET, 0, pair) == 0); break;
        default: continue;
        }
        in[i] = pair[0], out[i] = pair[1];
    }
    for (long i = 0; i < COUNT; i++) CHECK(!pthread_create(&threads[i], &attr, work, (void *)i));
    for (int i = 0; i < MESSAGES; i++) {
        struct message m = {i, HOPS - 1, i};
        put(i * 37 % COUNT, &m);
    }
    locked(1);
    for (int i = 0; i < MESSAGES; i++) CHECK(sem_wait(&over) == 0);
    unsigned long all = 0, ended = 0;
    for (int i = 0; i < MESSAGES; i++) all ^= results[i] * (i + 1);
    for (int i = 0; i < COUNT; i++) {
        struct message m = {0, -1 - i, 0};
        void *r;
        put(i, &m);
        CHECK(!pthread_join(threads[i], &r));
        ended += (long)r;
    }
    CHECK(semctl(semaphores, 0, IPC_RMID) == 0);
    for (int i = 0; i < QUEUES; i++) CHECK(msgctl(queues[i], IPC_RMID, NULL) == 0);
    say("%lx %lu: %lu %lu %lu %lu; %lu", all, total, passed[0], passed[1], passed[2], passed[3], ended);
}
