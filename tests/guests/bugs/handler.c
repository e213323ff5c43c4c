// A signal handler in the middle of a read-modify-write: the main loop takes the count of finished jobs and sets it
// to zero; a notification that comes in between is lost, and the program ends with jobs missing.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile int finished;
static volatile long results[8];
static pthread_t main_thread;

static void on_finished(int signo) {
    (void)signo;
    finished = finished + 1;
}

static void *worker(void *arg) {
    (void)arg;
    for (int job = 0; job < 5; job++) {
        long result = job + 1;
        for (int i = 0; i < 400; i++) result = result * 31 % 65521;
        results[job] = result;
        pthread_kill(main_thread, SIGUSR1);
        // The next job starts when this one's result is taken.
        while (results[job] != 0) sched_yield();
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_finished, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    main_thread = pthread_self();
    pthread_t thread;
    if (pthread_create(&thread, NULL, worker, NULL) != 0) exit(2);
    int seen = 0, polls = 0;
    long sum = 0;
    while (seen < 5) {
        int count = finished;
        finished = 0;
        for (; count > 0; count--) {
            sum += results[seen];
            results[seen++] = 0;
        }
        if (++polls > 20000) {
            fprintf(stderr, "%d of 5 jobs reported\n", seen);
            return 1;
        }
        sched_yield();
    }
    pthread_join(thread, NULL);
    printf("sum %ld\n", sum);
    return 0;
}
