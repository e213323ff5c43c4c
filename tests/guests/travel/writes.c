// Six million writes to one variable, in a loop with a call or in one without.
// variants: pie
// flags: -O1
// args: calls 6000000
#include "guest.h"
volatile long counter;
volatile long other;

__attribute__((noinline)) static void bump(long n) {
    counter = n;  // MARK: call
}

__attribute__((noinline)) static void with_calls(long count) {
    for (long i = 1; i <= count; i++) bump(i);
}

__attribute__((noinline)) static void without_calls(long count) {
    for (long i = 1; i <= count; i++) counter = i;  // MARK: plain
}

// What is done afterwards touches another variable only.
__attribute__((noinline)) void afterwards(void) {
    for (long i = 0; i < 100000; i++) other += i;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    long count = atol(argv[2]);
    if (!strcmp(argv[1], "calls")) with_calls(count);
    else without_calls(count);
    afterwards();
    say("%ld", counter);  // MARK: end
    return 0;
}
