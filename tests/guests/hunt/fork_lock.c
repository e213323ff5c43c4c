// fork while another thread has a lock: in the child nobody ever gives it back.
#include "bug.h"
#include <sys/wait.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int entries;
static void note(void) {
    pthread_mutex_lock(&lock);
    entries++;
    pthread_mutex_unlock(&lock);
}
static void *logger(void *arg) {
    for (int i = 0; i < 10; i++) {
        note();
        work(150);
    }
    return arg;
}
int main(void) {
    pthread_t thread = start(logger, NULL);
    for (int i = 0; i < 3; i++) {
        work(200);
        pid_t child = fork();
        if (child == 0) {
            note();
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0) return 1;
    }
    join(thread);
    return 0;
}
