// Threads with names that hand each other turns and count.
// variants: debug
#include "guest.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn, counts[3];
static __thread int mine;
static const char *const NAMES[] = {"alpha", "beta", "gamma"};

static void count(int number) {
    mine++;
    counts[number] += number + 1;  // MARK: count
}

static void *run(void *arg) {
    int number = (int)(long)arg;
    pthread_setname_np(pthread_self(), NAMES[number]);
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&lock);
        while (turn % 3 != number) pthread_cond_wait(&changed, &lock);
        count(number);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    say("%d %d %d", counts[0], counts[1], counts[2]);  // MARK: end
    return 0;
}
