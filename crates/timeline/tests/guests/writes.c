// Writes a variable very often: in a loop without calls, and in one with. Then a while of something else.
#include <stdio.h>
#include <stdlib.h>

volatile long counter, other;
volatile long asked;

__attribute__((noinline)) void put(long value) { counter = value; }

__attribute__((noinline)) void ask(long value) { asked += value & 1; }

int main(int argc, char **argv) {
    long times = argc > 1 ? atol(argv[1]) : 3000000;
    for (long i = 0; i < times; i++)
        ask(i);
    for (long i = 0; i < times; i++)
        counter = i;
    for (long i = 0; i < times; i++)
        put(i);
    for (long i = 0; argc > 2 && i < atol(argv[2]); i++)
        other += i;
    printf("%ld %ld %ld\n", counter, other, asked);
    return 0;
}
