// Tickets given out without care: two get the same number, and are both let in.
#include "bug.h"
static volatile int next_ticket, serving, inside;
static void *customer(void *arg) {
    for (int i = 0; i < 4; i++) {
        work(110);
        int mine = next_ticket;
        next_ticket = mine + 1;
        while (serving < mine) sched_yield();
        assert(++inside == 1);
        inside--;
        serving = mine + 1;
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(customer, NULL), start(customer, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
