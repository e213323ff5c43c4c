// A report that is wrong and nothing else: two threads count what they did in a block of the heap, among other counters that
// they share rightly or don't care about; the program ends with status 0, and prints too little. The first output that differs from a
// passing run's is where it fails.
// variable: allocated at report.c:40
// failure: Line 2 of the output is
// fail-if: output=done [123]?[0-9]\n
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct stats {
    volatile long polls, done, hints;
    pthread_mutex_t lock;
    long locked;
};

static struct stats *stats;
static volatile long mood;

static void *work(void *arg) {
    for (int i = 0; i < 20; i++) {
        mood = mood + 1;
        stats->polls = stats->polls + 1;
        pthread_mutex_lock(&stats->lock);
        stats->locked++;
        pthread_mutex_unlock(&stats->lock);
        stats->done = stats->done + 1; // LOCAL // REMOTE
        stats->hints = i;
    }
    return arg;
}

static void report(void) {
    printf("hello\n");
    printf("done %ld\n", stats->done);
    fflush(stdout);
}

int main(void) {
    stats = calloc(1, sizeof *stats);
    pthread_mutex_init(&stats->lock, NULL);
    pthread_t one, two;
    if (pthread_create(&one, NULL, work, NULL) != 0) exit(2);
    if (pthread_create(&two, NULL, work, NULL) != 0) exit(2);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    report();
    return 0;
}
