// One thread: calls, recursion, loops, heap, output, a handler.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long total;
static volatile sig_atomic_t handled;

static void handler(int signo) { handled += signo; }

static unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

__attribute__((noinline)) void round_done(int round) {
    if (round % 8 == 0)
        raise(SIGUSR1);
    printf("round %d: %lu\n", round, total);
}

int main(void) {
    signal(SIGUSR1, handler);
    char *block[64];
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 64; i++) {
            block[i] = malloc(100 + 37 * i);
            memset(block[i], round + i, 100 + 37 * i);
        }
        total += fib(12 + round % 4);
        for (int i = 0; i < 64; i++) {
            total += block[i][i];
            free(block[i]);
        }
        round_done(round);
    }
    printf("%lu %d\n", total, (int)handled);
    return 0;
}
