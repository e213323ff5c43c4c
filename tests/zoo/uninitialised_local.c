// A pointer that is set on one way only.
// kind: uninitialised
#include <stdio.h>
#include <string.h>
static int noise(int n) {
    long values[8];
    for (int at = 0; at < 8; at++) values[at] = 0x5151515151 + at;
    return (int)values[n];
}
static int length(int which) {
    const char *text; // CAUSE
    long room[4];
    if (which == 1) text = "one";
    room[which] = 4;
    return (int)strlen(text) + (int)room[which];
}
int main(void) {
    printf("%d\n", length(1));
    printf("%d\n", noise(2));
    printf("%d\n", length(2));
    return 0;
}
