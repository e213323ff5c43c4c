// Loops that are one line long: to step over one is one step, however often it runs.
// variants: debug
#include "guest.h"

static volatile long total;

static long twice(long n) {
    return 2 * n;
}

int main(void) {
    total = 1;  // MARK: first
    for (long n = 0; n < 3000000; n++) total += n;  // MARK: plain
    total = 2;  // MARK: between
    for (long n = 0; n < 200000; n++) total += twice(n);  // MARK: calls
    say("%ld", total);  // MARK: last
    return 0;
}
