// Sleeping instead of waiting: the cache is filled after 3 ms, and used after 200.
#include "bug.h"
static int *cache;
static void *filler(void *arg) {
    usleep(3000);
    int *made = calloc(100, sizeof *made);
    for (int i = 0; i < 100; i++) made[i] = work(i);
    cache = made;
    return arg;
}
static void *user(void *arg) {
    usleep(200000);
    printf("%d\n", cache[7]);
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(filler, NULL), start(user, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
