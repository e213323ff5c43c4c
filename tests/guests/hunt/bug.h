// What the programs in this folder have in common: threads that are begun and waited for, work of a thread's own.
#pragma once
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *body(void *);

static inline pthread_t start(body *run, void *arg) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, arg) != 0) exit(3);
    return thread;
}

static inline void join(pthread_t thread) {
    pthread_join(thread, NULL);
}

// Some ticks in which nothing happens that others see.
static __attribute__((noinline, unused)) int work(int rounds) {
    volatile int sum = rounds;
    for (int i = 0; i < rounds; i++) sum = sum * 37 % 1009;
    return sum;
}
