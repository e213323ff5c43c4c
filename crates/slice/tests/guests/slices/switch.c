// The paper's second example: control that depends on a jump through a table.
#include <stdio.h>
#include <stdlib.h>

volatile int w;

__attribute__((noinline)) static int choose(int c, int a)
{
    int r = 0;
    switch (c) {       // in
    case 0: r = a + 1; break;
    case 1: r = a * 3; break;
    case 2: r = a - 7; break;
    case 3: r = a / 2; break;
    case 4: r = 40; break;          // in
    case 5: r = a ^ 5; break;
    case 6: r = a << 3; break;
    default: r = -1;
    }
    return r;
}

int main(int argc, char **argv)
{
    int c = atoi(argv[1]) + argc;   // in
    int unrelated = argc * 5;       // out
    int a = unrelated + 2;          // out
    w = choose(c, a);               // in
    return 0;                       // ask w
}
