// A word goes round: each thread waits to be woken by the one that was made before it, main by the last.
// args: 6
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 64 };
static _Atomic int words[MOST + 1];
static _Atomic int ready;
static int count;

static void await(_Atomic int *word) {
    while (!atomic_load(word))
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void pass(_Atomic int *word) {
    atomic_store(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *member(void *number) {
    int n = (int)(long)number;
    atomic_fetch_add(&ready, 1);
    await(&words[n]);
    pass(&words[n + 1]);
    return NULL;
}

int main(int argc, char **argv) {
    count = argc > 1 ? atoi(argv[1]) : 6;
    pthread_t threads[MOST];
    for (long n = 0; n < count; n++)
        pthread_create(&threads[n], NULL, member, (void *)n);
    while (atomic_load(&ready) < count)
        sched_yield();
    pass(&words[0]);
    await(&words[count]);
    for (int n = 0; n < count; n++)
        pthread_join(threads[n], NULL);
    puts("round");
    return 0;
}
