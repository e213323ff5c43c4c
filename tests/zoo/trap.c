// A check that ends in the instruction that no CPU knows, as compilers make them.
// kind: abort
#include <stdio.h>
static unsigned room = 3;
static void take(unsigned places) {
    room -= places; // CAUSE
}
static void check(void) {
    if (room > 100) __builtin_trap();
}
int main(void) {
    for (unsigned places = 1; places < 4; places++) {
        take(places);
        check();
    }
    printf("%u\n", room);
    return 0;
}
