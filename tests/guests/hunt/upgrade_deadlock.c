// Two readers that become writers without letting go: a lock of one's own, whose upgrade waits for all other readers.
#include "bug.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int readers, total;
static void *clerk(void *arg) {
    for (int i = 0; i < 3; i++) {
        work(120);
        pthread_mutex_lock(&lock);
        readers++;
        pthread_mutex_unlock(&lock);
        int seen = total;
        pthread_mutex_lock(&lock);
        while (readers > 1) pthread_cond_wait(&changed, &lock);
        total = seen + 1;
        readers--;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(clerk, NULL), start(clerk, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
