// Work stealing: the owner takes from the bottom, a thief from the top; for the last task the owner should have fought for the top.
#include "bug.h"
enum { TASKS = 12 };
static atomic_int top, bottom;
static int tasks[TASKS];
static atomic_int ran[TASKS];
static void run(int task) { work(20); atomic_fetch_add(&ran[task], 1); }
static void *owner(void *arg) {
    for (int i = 0; i < TASKS; i++) {
        tasks[bottom] = i;
        bottom++;
        work(10);
        if (i % 3 != 2) continue;
        int b = --bottom;
        if (top <= b) run(tasks[b]);
        else bottom = b + 1;
    }
    return arg;
}
static void *thief(void *arg) {
    for (int tries = 0; tries < 60; tries++) {
        int t = top;
        if (t < bottom) {
            int task = tasks[t];
            if (atomic_compare_exchange_strong(&top, &t, t + 1)) run(task);
        }
        work(12);
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(owner, NULL), start(thief, NULL)};
    join(threads[0]);
    join(threads[1]);
    for (int i = 0; i < TASKS; i++) assert(ran[i] <= 1);
    return 0;
}
