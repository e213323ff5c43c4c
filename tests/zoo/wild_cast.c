// A handle that is an index is taken for a pointer.
// kind: wild-pointer
#include <stdint.h>
#include <stdio.h>
struct item { long weight; };
static struct item items[4] = {{1}, {2}, {3}, {4}};
static uintptr_t handles[4];
static void fill(void) {
    for (int at = 0; at < 4; at++) handles[at] = (uintptr_t)&items[at];
    handles[2] = 0x20002; // CAUSE
}
static long weigh(uintptr_t handle) { return ((struct item *)handle)->weight; }
int main(void) {
    fill();
    long sum = 0;
    for (int at = 0; at < 4; at++) sum += weigh(handles[at]);
    printf("%ld\n", sum);
    return 0;
}
