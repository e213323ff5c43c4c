// Timed polling: a lease of 50 ms is checked and then used. Who takes too long in between uses what somebody else has.
#include "bug.h"
#include <time.h>
static atomic_int holder;
static _Atomic(long) lease_end;
static volatile int inside;
static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}
static void *client(void *arg) {
    int me = (int)(long)arg;
    for (int rounds = 0; rounds < 3;) {
        int nobody = 0;
        if (now() > lease_end && lease_end != 0) holder = 0;
        if (!atomic_compare_exchange_strong(&holder, &nobody, me)) {
            usleep(5000);
            continue;
        }
        lease_end = now() + 50000;
        inside++;
        usleep(1000);
        assert(inside == 1);
        inside--;
        rounds++;
        lease_end = 0;
        holder = 0;
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(client, (void *)1), start(client, (void *)2)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
