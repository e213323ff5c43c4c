// A worker uses a table that whoever made the worker fills afterwards.
// held: out
// variable: table
// pattern: order
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int table[16];
static volatile int result;

static void *worker(void *arg) {
    volatile unsigned warm = 1;
    for (int i = 0; i < 200; i++) warm = warm * 31 + i;
    result = 100 / table[7]; // LOCAL
    return arg;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, worker, NULL) != 0) exit(2);
    for (int i = 0; i < 16; i++) table[i] = i + 1; // REMOTE
    pthread_join(thread, NULL);
    printf("%d\n", result);
    return 0;
}
