// What a loop adds up, and what decides about it; recursion; a value through memcpy, a structure and a pointer.
#include <stdlib.h>
#include <string.h>

struct box { int a, b; char text[40]; };
volatile int result;
struct box first, second;

__attribute__((noinline)) static int depth(int n)
{
    if (n == 0)                     // in
        return 5;                   // in
    return depth(n - 1) + 2;        // in
}

int main(int argc, char **argv)
{
    int sum = 0, other = 0;
    int limit = atoi(argv[1]);      // in
    for (int i = 0; i < limit; i++) {   // in
        sum += i * argc;            // in
        other += i ^ argc;          // out
    }
    first.a = sum;                  // moved
    first.b = other;                // out
    memcpy(&second, &first, sizeof first);
    struct box *p = &second;
    p->b = p->b * 3;                // out
    result = p->a + depth(3);       // in
    return 0;                       // ask result
}
