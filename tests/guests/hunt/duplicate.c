// Looked up under a lock, made without it, entered under it again: two threads make the same session.
#include "bug.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int *sessions[8];
static int made;
static int *session(int user) {
    pthread_mutex_lock(&lock);
    int *found = sessions[user];
    pthread_mutex_unlock(&lock);
    if (found != NULL) return found;
    found = calloc(1, sizeof *found);
    pthread_mutex_lock(&lock);
    sessions[user] = found;
    made++;
    pthread_mutex_unlock(&lock);
    return found;
}
static void *client(void *arg) {
    for (int i = 0; i < 5; i++) {
        work(150);
        ++*session(i);
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(client, NULL), start(client, NULL)};
    join(threads[0]);
    join(threads[1]);
    assert(made == 5);
    return 0;
}
