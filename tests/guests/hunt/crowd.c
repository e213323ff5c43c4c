// Many threads in one place: eight visitors pass a room that has space for six, which nobody counts in time.
#include "bug.h"
static atomic_int inside;
static int seats[6];
static void *visitor(void *arg) {
    work(50);
    int seat = atomic_fetch_add(&inside, 1);
    if (seat >= 6) abort();
    seats[seat]++;
    work(5);
    atomic_fetch_sub(&inside, 1);
    return arg;
}
int main(void) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) threads[i] = start(visitor, NULL);
    for (int i = 0; i < 8; i++) join(threads[i]);
    return 0;
}
