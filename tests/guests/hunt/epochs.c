// A thread held for whole phases: what is retired is freed two epochs later, but the epoch advances without asking whether
// readers have left the old one.
#include "bug.h"
struct config { int checksum, values[7]; };
static _Atomic(struct config *) current;
static struct config *retired[3];
static struct config *make(int seed) {
    struct config *made = malloc(sizeof *made);
    made->checksum = 0;
    for (int i = 0; i < 7; i++) made->checksum += made->values[i] = seed * 31 + i;
    return made;
}
static void *reader(void *arg) {
    for (int round = 0; round < 5; round++) {
        struct config *seen = current;
        int sum = 0;
        for (int i = 0; i < 7; i++) sum += ((volatile struct config *)seen)->values[i];
        assert(sum == ((volatile struct config *)seen)->checksum);
        work(30);
    }
    return arg;
}
static void *updater(void *arg) {
    for (int epoch = 1; epoch < 9; epoch++) {
        struct config *old = atomic_exchange(&current, make(epoch));
        struct config **slot = &retired[epoch % 3];
        if (*slot != NULL) memset(*slot, 0x55, sizeof **slot);
        *slot = old;
        work(60);
    }
    return arg;
}
int main(void) {
    current = make(0);
    pthread_t threads[] = {start(reader, NULL), start(updater, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
