// A cache: read from the store, entered into the cache; in between the store changes and the entry is dropped, too early.
#include "bug.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int store = 1, cached;
static int lookup(void) {
    pthread_mutex_lock(&lock);
    int found = cached;
    pthread_mutex_unlock(&lock);
    if (found != 0) return found;
    found = store;
    pthread_mutex_lock(&lock);
    cached = found;
    pthread_mutex_unlock(&lock);
    return found;
}
static void *reader(void *arg) {
    for (int i = 0; i < 4; i++) {
        work(140);
        lookup();
    }
    return arg;
}
static void *writer(void *arg) {
    for (int i = 2; i < 5; i++) {
        work(160);
        store = i;
        pthread_mutex_lock(&lock);
        cached = 0;
        pthread_mutex_unlock(&lock);
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(reader, NULL), start(writer, NULL)};
    join(threads[0]);
    join(threads[1]);
    assert(lookup() == store);
    return 0;
}
