// alloca and frames of megabytes: the stack grows as it is touched.
// variants: pie debug static musl
#include "guest.h"
#include <alloca.h>
__attribute__((noinline)) static long recurse(int n) {
    char frame[100000];
    memset(frame, n, sizeof frame);
    __asm__ volatile("" : : "r"(frame) : "memory");
    return n ? recurse(n - 1) + frame[5000] : frame[0];
}
__attribute__((noinline)) static long use(size_t size) {
    char *p = alloca(size);
    p[0] = 1;
    p[size - 1] = 2;
    __asm__ volatile("" : : "r"(p) : "memory");
    return p[0] + p[size - 1];
}
__attribute__((noinline)) static int huge_frame(void) {
    char huge[7000000];
    huge[0] = 1;
    huge[sizeof huge - 1] = 1;
    __asm__ volatile("" : : "r"(huge) : "memory");
    return huge[0] + huge[sizeof huge - 1];
}
int main(void) {
    printf("%ld\n", recurse(60));
    long sum = 0;
    for (size_t size = 16; size < 5000000; size *= 3) sum += use(size);
    printf("%ld\n", sum);
    printf("%d\n", huge_frame());
}
