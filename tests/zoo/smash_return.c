// Without a guard on the stack: the return address itself is overwritten.
// kind: stack-smash
// flags: -O1 -fno-stack-protector
#include <stdio.h>
#include <string.h>
__attribute__((noinline)) static int sum(int count) {
    volatile long cells[4];
    for (int at = 0; at < count; at++) cells[at] = 0x4242424242; // CAUSE
    return (int)(cells[0] + cells[1]);
}
int main(void) {
    printf("%d\n", sum(4));
    printf("%d\n", sum(9));
    return 0;
}
