// What is freed isn't what was allocated: the pointer has moved on.
// kind: invalid-free
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char *trimmed(const char *text) {
    char *copy = strdup(text);
    while (isspace((unsigned char)*copy)) copy++; // CAUSE
    return copy;
}
int main(void) {
    char *word = trimmed("  word");
    puts(word);
    free(word);
    return 0;
}
