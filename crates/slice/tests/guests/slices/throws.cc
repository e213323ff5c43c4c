// What decides across an exception: the branch that threw, not those that were passed by.
#include <cstdlib>

volatile int result;
volatile int noise;

__attribute__((noinline)) static int check(int n)
{
    if (noise == 77)                // out
        noise = 3;                  // out
    if (n > 3)                      // in
        throw n * 2;                // in
    return n;
}

int main(int argc, char **argv)
{
    int n = atoi(argv[1]);          // in
    int got = 0;
    noise = argc;                   // out
    try {
        got = check(n);             // in
    } catch (int thrown) {
        got = thrown + 1;           // in
    }
    for (int i = 0; i < 3; i++)     // out
        noise += i;                 // out
    result = got;
    return 0;                       // ask result
}
