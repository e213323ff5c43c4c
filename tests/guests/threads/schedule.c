// Producers and consumers that compute, lock, wait, yield and fork, with nothing from outside: the
// same schedule gives the same order, which the last line sums up with an argument.
// variants: static
#include "guest.h"
#include <sched.h>
enum { ITEMS = 1500, SIZE = 8 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static long queue[SIZE], taken;
static int length;
static unsigned long order;
static void *produce(void *arg) {
    uint64_t state = (uint64_t)(long)arg;
    for (int i = 0; i < ITEMS; i++) {
        volatile long work = 0;
        for (long n = next_random(&state) % 200; n; n--) work += n;
        pthread_mutex_lock(&mutex);
        while (length == SIZE) pthread_cond_wait(&not_full, &mutex);
        queue[length++] = (long)arg;
        order = order * 31 + (unsigned long)arg;
        pthread_cond_signal(&not_empty);
        pthread_mutex_unlock(&mutex);
        if (i % 100 == 0) sched_yield();
    }
    return NULL;
}
static void *consume(void *arg) {
    for (int i = 0; i < ITEMS; i++) {
        pthread_mutex_lock(&mutex);
        while (!length) pthread_cond_wait(&not_empty, &mutex);
        taken += queue[--length];
        order = order * 37 + (unsigned long)arg;
        pthread_cond_signal(&not_full);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}
static void work(void) {
    pthread_t threads[6];
    for (long i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, i < 3 ? produce : consume, (void *)(i + 1)) == 0);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    CHECK(taken == ITEMS * (1 + 2 + 3));
}
int main(int argc, char **argv) {
    (void)argv;
    for (int child = 0; child < 2; child++) {
        pid_t pid = fork();
        if (!pid) {
            work();
            if (argc > 1) say("child %lx", order);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    work();
    if (argc > 1) say("parent %lx", order);
    say("done");
}
