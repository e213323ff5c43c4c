// The wrong lock: the stock is changed under the warehouse's lock, but audited under the auditor's. The auditor reads it twice.
#include "bug.h"
static pthread_mutex_t warehouse = PTHREAD_MUTEX_INITIALIZER, auditor = PTHREAD_MUTEX_INITIALIZER;
static volatile int stock = 100;
static void *deliver(void *arg) {
    for (int i = 0; i < 4; i++) {
        work(60);
        pthread_mutex_lock(&warehouse);
        stock++;
        pthread_mutex_unlock(&warehouse);
    }
    return arg;
}
static void *audit(void *arg) {
    for (int i = 0; i < 4; i++) {
        work(70);
        pthread_mutex_lock(&auditor);
        int before = stock, after = stock;
        pthread_mutex_unlock(&auditor);
        assert(before == after);
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(deliver, NULL), start(deliver, NULL), start(audit, NULL)};
    for (int i = 0; i < 3; i++) join(threads[i]);
    return 0;
}
