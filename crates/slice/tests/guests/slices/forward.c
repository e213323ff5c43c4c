// What a value influences: through registers, memory, a branch, to what is written out; not what it is overwritten by.
#include <stdlib.h>
#include <unistd.h>

volatile int seed, other, sum, copy;
char out[2];

__attribute__((noinline)) void begin(void)
{
}

int main(int argc, char **argv)
{
    seed = atoi(argv[1]);
    other = argc * 3;
    begin();
    copy = seed;
    sum = copy + other;             // influenced
    other = other * 5;
    if (sum > 3)                    // influenced
        other++;
    out[0] = 'a' + sum % 26;        // influenced
    out[1] = '\n';
    seed = 0;
    copy = seed;
    sum = copy + 1;
    write(1, out, 2);
    return 0;
}
