// Writes all of a lot of memory again and again: big MEBIBYTES ROUNDS
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    size_t size = (argc > 1 ? atol(argv[1]) : 64) << 20;
    int rounds = argc > 2 ? atoi(argv[2]) : 10;
    unsigned long *memory = malloc(size), sum = 0;
    for (int round = 0; round < rounds; round++)
        for (size_t n = 0; n < size / sizeof *memory; n++)
            sum += memory[n] = n ^ round;
    printf("%lu\n", sum);
    free(memory);
    return 0;
}
