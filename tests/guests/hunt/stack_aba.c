// A lock-free stack of slots without a version: one who pops has read the next slot, others pop two and push the first back.
#include "bug.h"
enum { SLOTS = 4 };
static int next[SLOTS] = {1, 2, 3, -1};
static atomic_int top;
static atomic_int owners[SLOTS];
static int pop(void) {
    int slot = top;
    while (slot >= 0 && !atomic_compare_exchange_strong(&top, &slot, ((volatile int *)next)[slot])) {}
    return slot;
}
static void push(int slot) {
    int head = top;
    do next[slot] = head;
    while (!atomic_compare_exchange_strong(&top, &head, slot));
}
static void *user(void *arg) {
    for (int i = 0; i < 4; i++) {
        int one = pop(), two = pop();
        if (one >= 0) assert(atomic_fetch_add(&owners[one], 1) == 0);
        if (two >= 0) assert(atomic_fetch_add(&owners[two], 1) == 0);
        work(15);
        if (one >= 0) { atomic_fetch_sub(&owners[one], 1); push(one); }
        work(5);
        if (two >= 0) { atomic_fetch_sub(&owners[two], 1); push(two); }
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(user, NULL), start(user, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
