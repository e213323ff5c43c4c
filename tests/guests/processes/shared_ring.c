// A ring in shared memory between parent and child, who wait by spinning; accesses that cross a page,
// string instructions over several; a child that is killed while it uses the memory.
#include "guest.h"
#include <sched.h>
#include <stdatomic.h>
#define SLOTS 16
#define ITEMS 400
struct ring {
    atomic_ulong head, tail;
    unsigned long item[SLOTS];
    char block[3 * 4096];
    atomic_ulong flag;
};
int main(void) {
    struct ring *ring =
        mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(ring != MAP_FAILED);
    strcpy(ring->block, "before the fork");
    pid_t child = fork();
    if (child == 0) {
        CHECK(!strcmp(ring->block, "before the fork"));
        for (unsigned long i = 0; i < ITEMS; i++) {
            while (ring->head - ring->tail == SLOTS) {}
            ring->item[i % SLOTS] = i * i;
            ring->head++;
        }
        // Its own order: both pages of the parent's unaligned word, the other way round.
        for (int i = 0; i < 50; i++) {
            atomic_fetch_add(&ring->flag, 1);
            *(volatile unsigned long *)((((uintptr_t)ring->block + 4095) & ~4095ul) - 3) += 1;
        }
        _exit(5);
    }
    unsigned long sum = 0, waited = 0;
    for (unsigned long i = 0; i < ITEMS; i++) {
        while (ring->head == ring->tail) waited++;
        sum += ring->item[i % SLOTS];
        ring->tail++;
    }
    for (int i = 0; i < 50; i++) {
        atomic_fetch_add(&ring->flag, 1);
        *(volatile unsigned long *)((((uintptr_t)ring->block + 4095) & ~4095ul) - 3) += 0;
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say_status("child", status);
    say("sum %lu flag %lu %s", sum, (unsigned long)ring->flag, waited ? "waited" : "never waited");

    child = fork();
    if (child == 0) {
        char line[3000];
        memset(line, 'x', sizeof line);
        for (;;) {
            for (size_t at = 0; at < sizeof ring->block - sizeof line; at += 700)
                memcpy(ring->block + at, line, sizeof line);
            ring->flag = 1000;
        }
    }
    while (ring->flag != 1000) sched_yield();
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child);
    say_status("killed", status);
    memset(ring->block, 'y', sizeof ring->block);
    say("%c %c", ring->block[0], ring->block[sizeof ring->block - 1]);
}
