// A job is looked up under the lock, and used without it; whoever removes jobs has freed it meanwhile.
// held: out
// variable: refs
// pattern: RWR
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct job {
    int refs;
    unsigned work;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct job *jobs[4];

static unsigned cost(unsigned seed) {
    for (int i = 0; i < 60; i++) seed = seed * 1664525 + 1013904223;
    return seed;
}

static void *user(void *arg) {
    (void)arg;
    for (int i = 0; i < 4; i++) {
        pthread_mutex_lock(&lock);
        int found = jobs[i]->refs; // LOCAL
        pthread_mutex_unlock(&lock);
        if (found == 0) continue;
        unsigned made = cost(i);
        pthread_mutex_lock(&lock);
        if (jobs[i]->refs == 0) abort(); // LOCAL
        jobs[i]->work += made;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void *remover(void *arg) {
    (void)arg;
    for (int i = 3; i >= 0; i--) {
        volatile unsigned thinks = cost(i) + cost(i + 1) + cost(i + 2);
        (void)thinks;
        pthread_mutex_lock(&lock);
        jobs[i]->refs--; // REMOTE
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void) {
    for (int i = 0; i < 4; i++) {
        jobs[i] = calloc(1, sizeof *jobs[i]);
        jobs[i]->refs = 1;
    }
    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, user, NULL) != 0) exit(2);
    if (pthread_create(&threads[1], NULL, remover, NULL) != 0) exit(2);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("done\n");
    return 0;
}
