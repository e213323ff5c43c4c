// A reader that becomes a writer: what was looked up under the read lock is entered under the write lock, without another look.
#include "bug.h"
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static int entries, keys[64];
static void insert(int key) {
    pthread_rwlock_rdlock(&lock);
    int found = 0;
    for (int i = 0; i < entries; i++) found |= keys[i] == key;
    pthread_rwlock_unlock(&lock);
    if (found) return;
    pthread_rwlock_wrlock(&lock);
    keys[entries++] = key;
    pthread_rwlock_unlock(&lock);
}
static void *user(void *arg) {
    for (int i = 0; i < 6; i++) {
        work(80);
        insert(i);
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(user, NULL), start(user, NULL)};
    join(threads[0]);
    join(threads[1]);
    assert(entries == 6);
    return 0;
}
