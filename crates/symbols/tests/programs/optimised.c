/* What optimising compilers do to variables. */
#include <stdio.h>

struct pair {
    int a;
    long b;
};

volatile int sink;
int depth;

static inline __attribute__((always_inline)) int through(int *pointer)
{
    sink = depth; /* STOP */
    return *pointer + 1;
}

/* first is dead after the call: only the caller knows what it was. */
static __attribute__((noinline)) int consume(int first, int second)
{
    struct pair pair = {second * 3, second * 5L};
    int local = second + 41;
    puts("consuming");
    int result = through(&local);
    sink = pair.a;
    if (sink == first + 100)
        puts("never");
    return result + second + (int)pair.b;
}

int main(int argc, char **argv)
{
    (void)argv;
    return consume(7, argc) == 0;
}
