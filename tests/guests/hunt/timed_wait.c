// A wait with a timeout whose end by time is taken for success. The answer usually comes long before.
#include "bug.h"
#include <time.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static const char *answer;
static void *server(void *arg) {
    usleep(2000);
    pthread_mutex_lock(&lock);
    answer = "yes";
    pthread_cond_signal(&came);
    pthread_mutex_unlock(&lock);
    return arg;
}
int main(void) {
    pthread_t thread = start(server, NULL);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    pthread_mutex_lock(&lock);
    if (answer == NULL) pthread_cond_timedwait(&came, &lock, &until);
    printf("%zu\n", strlen(answer));
    pthread_mutex_unlock(&lock);
    join(thread);
    return 0;
}
