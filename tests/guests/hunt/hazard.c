// A hazard pointer that is set without another look: the object was retired and reclaimed between reading and announcing.
#include "bug.h"
struct object { volatile int live; };
static struct object objects[8];
static _Atomic(struct object *) shared, hazard;
static void *reader(void *arg) {
    for (int i = 0; i < 6; i++) {
        struct object *seen = shared;
        hazard = seen;
        assert(seen->live);
        work(3);
        hazard = NULL;
        work(70);
    }
    return arg;
}
static void *writer(void *arg) {
    for (int i = 1; i < 8; i++) {
        work(80);
        objects[i].live = 1;
        struct object *old = atomic_exchange(&shared, &objects[i]);
        while (hazard == old) sched_yield();
        old->live = 0;
    }
    return arg;
}
int main(void) {
    objects[0].live = 1;
    shared = objects;
    pthread_t threads[] = {start(reader, NULL), start(writer, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
