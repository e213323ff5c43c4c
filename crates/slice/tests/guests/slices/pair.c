// The paper's third example: a register that a function saves and gives back depends on nothing of it.
#include <stdlib.h>

volatile int result;
volatile int sink;

__attribute__((noinline)) static int busy(int a, int b, int c, int d)
{
    int s = 0;
    for (int i = 0; i < a; i++)     // out
        s += (b ^ i) * (c + i) - (d & i) + sink;   // out
    return s;
}

int main(int argc, char **argv)
{
    int n = atoi(argv[1]);          // out
    int kept = argc * 7;            // in
    int e = kept + 1;               // in
    if (n > 3)                      // out
        sink = busy(n, n + 1, n + 2, n + 3);   // out
    sink = busy(n + 1, n, n, 3);    // out
    result = e - 2;                 // in
    return 0;                       // ask result
}
