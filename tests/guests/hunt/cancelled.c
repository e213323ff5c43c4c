// A thread is cancelled while it has a lock: it writes to a file there, where it can be.
#include "bug.h"
#include <fcntl.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int null;
static void *logger(void *arg) {
    for (int i = 0; i < 6; i++) {
        pthread_testcancel();
        work(300);
        pthread_mutex_lock(&lock);
        (void)!write(null, "x", 1);
        pthread_mutex_unlock(&lock);
    }
    return arg;
}
int main(void) {
    null = open("/dev/null", O_WRONLY);
    pthread_t thread = start(logger, NULL);
    work(900);
    pthread_cancel(thread);
    join(thread);
    pthread_mutex_lock(&lock);
    puts("done");
    return 0;
}
