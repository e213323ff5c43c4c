// A line that is longer than the room for it on the stack.
// kind: stack-smash
// flags: -fstack-protector-all
// stdin: a line of text that is much too long for sixteen bytes\n
#include <stdio.h>
#include <string.h>
static char input[200];
static int count(const char *text) {
    char copy[16];
    strcpy(copy, text); // CAUSE
    int words = 1;
    for (char *at = copy; *at; at++) words += *at == ' ';
    return words;
}
int main(void) {
    if (!fgets(input, sizeof input, stdin)) return 2;
    printf("%d\n", count(input));
    return 0;
}
