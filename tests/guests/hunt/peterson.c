// Peterson's lock with its two steps in the wrong order: first who may go, then that one wants to.
#include "bug.h"
static atomic_int wants[2], turn, inside;
static void *party(void *arg) {
    int me = (int)(long)arg;
    for (int i = 0; i < 4; i++) {
        work(100);
        turn = 1 - me;
        wants[me] = 1;
        while (wants[1 - me] && turn == 1 - me) sched_yield();
        assert(atomic_fetch_add(&inside, 1) == 0);
        work(2);
        atomic_fetch_sub(&inside, 1);
        wants[me] = 0;
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(party, (void *)0), start(party, (void *)1)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
