// A sequence lock whose reader looks at the number only afterwards: it may begin while it is odd.
#include "bug.h"
static atomic_uint sequence;
static volatile int left = 50, right = 50;
static void *writer(void *arg) {
    for (int i = 0; i < 5; i++) {
        work(100);
        atomic_fetch_add(&sequence, 1);
        left -= 3;
        right += 3;
        atomic_fetch_add(&sequence, 1);
    }
    return arg;
}
static void *reader(void *arg) {
    for (int i = 0; i < 5; i++) {
        work(90);
        unsigned before;
        int one, two;
        do {
            before = sequence;
            one = left;
            two = right;
        } while (sequence != before);
        assert(one + two == 100);
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(writer, NULL), start(reader, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
