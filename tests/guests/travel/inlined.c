// Optimised: functions inlined into each other, variables in registers.
// variants: pie
// flags: -O2
#include "guest.h"
volatile int table[64];

static inline __attribute__((always_inline)) int innermost(int a, int b) {
    int mixed = a * 31 + b;
    table[mixed & 63] = mixed;  // MARK: innermost
    return mixed ^ (mixed >> 3);
}

static inline __attribute__((always_inline)) int middle(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += innermost(i, n);  // MARK: middle
    return sum;
}

__attribute__((noinline)) int outer(int rounds) {
    int total = 0;
    for (int i = 1; i <= rounds; i++) total += middle(i);
    return total;  // MARK: outer
}

int main(void) {
    say("%d", outer(12));
    return 0;
}
