// A count of references: who finds the object in the table takes a reference after the last one may have gone.
#include "bug.h"
struct object { atomic_int references; volatile int alive; };
static struct object object;
static _Atomic(struct object *) table;
static void drop(struct object *o) {
    if (atomic_fetch_sub(&o->references, 1) == 1) {
        table = NULL;
        o->alive = 0;
    }
}
static void *owner(void *arg) {
    work(120);
    drop(&object);
    return arg;
}
static void *finder(void *arg) {
    for (int i = 0; i < 5; i++) {
        struct object *found = table;
        if (found != NULL) {
            atomic_fetch_add(&found->references, 1);
            assert(found->alive);
            work(4);
            assert(found->alive);
            drop(found);
        }
        work(40);
    }
    return arg;
}
int main(void) {
    object.references = 1;
    object.alive = 1;
    table = &object;
    pthread_t threads[] = {start(owner, NULL), start(finder, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
