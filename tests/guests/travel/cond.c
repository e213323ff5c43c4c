// A function that is called ten million times.
// variants: pie
// flags: -O1
// args: 10000000
#include "guest.h"
static volatile long total;

__attribute__((noinline)) void called(long n) {
    total += n & 3;  // MARK: called
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 10000000;
    for (long i = 0; i < count; i++) called(i);
    say("%ld", total);  // MARK: end
    return 0;
}
