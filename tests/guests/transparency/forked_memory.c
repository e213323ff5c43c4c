// What a forked child finds of memory with MADV_DONTFORK and MADV_WIPEONFORK; segments detached in part.
// variants: pie static
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>

static char *area(void) {
    char *p = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memset(p, 1, 4 * 4096);
    return p;
}

static void in_child(const char *what, char *p) {
    pid_t child = fork();
    if (child == 0) {
        say("%s: first %d", what, p[0]);
        say("%s: last %d", what, p[3 * 4096]);
        p[2 * 4096] = 2;
        _exit(4);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say_status(what, status);
}

int main(void) {
    char *p = area();
    CHECK(madvise(p, 4 * 4096, MADV_WIPEONFORK) == 0);
    in_child("wiped", p);
    CHECK(madvise(p, 4 * 4096, MADV_DONTFORK) == 0);
    CHECK(madvise(p, 2 * 4096, MADV_DOFORK) == 0);
    in_child("wiped, half of it dropped", p);
    CHECK(madvise(p, 4 * 4096, MADV_KEEPONFORK) == 0);
    in_child("kept, half of it dropped", p);
    CHECK(madvise(p, 4 * 4096, MADV_DOFORK) == 0);
    in_child("kept", p);

    // A segment without its begin, and without its middle.
    int id = shmget(IPC_PRIVATE, 8 * 4096, 0600);
    CHECK(id >= 0);
    char *segment = shmat(id, NULL, 0);
    CHECK(segment != (char *)-1);
    segment[7 * 4096] = 9;
    CHECK(munmap(segment, 4096) == 0 && munmap(segment + 4 * 4096, 4096) == 0);
    CHECK(shmdt(segment) == 0);
    unsigned char resident;
    for (int i = 0; i < 8; i++) CHECK(mincore(segment + i * 4096, 4096, &resident) == -1 && errno == ENOMEM);
    CHECK(shmdt(segment) == -1 && errno == EINVAL);
    char *again = shmat(id, segment, 0);
    say("attached again %d, %d", again == segment, again[7 * 4096]);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    return 0;
}
