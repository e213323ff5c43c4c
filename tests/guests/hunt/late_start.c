// A thread that begins late: the watcher registers itself as its first step, and main counts on that when the work is done.
#include "bug.h"
static _Atomic(const char *) watcher_name;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done;
static void *watcher(void *arg) { watcher_name = "watcher"; work(100); return arg; }
static void *worker(void *arg) {
    for (int i = 0; i < 10; i++) {
        work(100);
        pthread_mutex_lock(&lock);
        done++;
        pthread_mutex_unlock(&lock);
    }
    return arg;
}
int main(void) {
    pthread_t watching = start(watcher, NULL);
    pthread_t threads[] = {start(worker, NULL), start(worker, NULL)};
    join(threads[0]);
    join(threads[1]);
    printf("%d done, seen by %zu letters\n", done, strlen(watcher_name));
    join(watching);
    return 0;
}
