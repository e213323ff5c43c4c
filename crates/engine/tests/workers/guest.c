// Threads that race, a handler, time, output, a forked child: places of all kinds.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

volatile unsigned long counter, alarms;
static unsigned char table[4096];

static void on_alarm(int sig) { alarms++; }

__attribute__((noinline)) unsigned long mix(unsigned long x) {
    for (int i = 0; i < 50; i++)
        x = x * 6364136223846793005ul + (x >> 7) + i;
    return x;
}

static void *work(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "worker %ld", (long)arg);
    prctl(PR_SET_NAME, name);
    for (int i = 0; i < 3000; i++) {
        counter += mix(i) & 3;
        table[i % sizeof table] ^= (unsigned char)counter;
        if (i % 1000 == 0)
            __builtin_ia32_pause();
    }
    return NULL;
}

// For excursions: nobody calls these.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
long say(int n) { return printf("%d of %ld bytes\n", n, (long)time(NULL) > 1000) + fflush(stdout); }
long take_memory(long size) {
    char *p = malloc(size);
    memset(p, 7, size);
    long last = p[size - 1];
    free(p);
    return last;
}
long abort_now(void) { abort(); }
long leave(int status) { exit(status); }
long touch(long addr) { return *(volatile long *)addr; }
long spin(void) { for (;;) counter++; }
long wait_for_nobody(void) {
    pthread_mutex_lock(&lock);
    return pthread_mutex_lock(&lock);
}

// So often that it takes a second or so; see `speed`.
static void many(int n) {
    for (int i = 0; i < n; i++)
        counter += mix(i) & 3;
}

int main(int argc, char **argv) {
    if (argc > 2) {
        many(atoi(argv[2]));
        return 0;
    }
    struct itimerval timer = {{0, 2000}, {0, 2000}};
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &timer, NULL);
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    struct timespec now;
    long sum = 0;
    for (int i = 0; i < 200; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        sum += now.tv_nsec;
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("counted %lu, %d\n", counter, (int)(sum & 1));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 1000; i++)
            counter += mix(i) & 1;
        printf("child %lu\n", counter);
        fflush(stdout);
        _exit(3);
    }
    waitpid(child, NULL, 0);
    if (argc > 1)
        *(volatile int *)(unsigned long)counter = 1;
    return 0;
}
