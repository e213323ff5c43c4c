// An offset from the input is used as it came.
// kind: wild-pointer
// stdin: 900000000000\n
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static char table[64];
int main(void) {
    char text[32];
    ssize_t got = read(0, text, sizeof text - 1); // CAUSE
    text[got > 0 ? got : 0] = 0;
    long at = atol(text);
    table[at] = 1;
    printf("%d\n", table[0]);
    return 0;
}
