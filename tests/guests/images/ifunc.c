// Functions chosen at relocation time, in the program itself and through a pointer.
// variants: pie nopie static static-pie
#include "guest.h"
static int small(int n) { return n + 1; }
static int large(int n) { return n + 1000; }
static void *choose(void) { return (void *)large; }
static void *choose_small(void) { return (void *)small; }
int pick(int n) __attribute__((ifunc("choose")));
int other(int n) __attribute__((ifunc("choose_small")));
int (*volatile pointer)(int) = pick;
int main(void) {
    char buffer[100];
    memset(buffer, 'x', sizeof buffer); // libc's own
    printf("%d %d %d %zu\n", pick(1), other(1), pointer(2), strnlen(buffer, sizeof buffer));
}
