// A copy that forgets the final zero's place runs over the allocator's own words.
// kind: heap-overflow
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char *doubled(const char *text) {
    char *made = malloc(strlen(text) * 2);
    strcpy(made, text);
    strcat(made, text);
    return made;
}
int main(void) {
    char *one = doubled("abcdefghijkl");
    char *two = malloc(24);
    strcpy(two, "second");
    memset(one, 'z', 33); // CAUSE
    free(one);
    free(two);
    char *three = malloc(2000);
    puts(three ? "ok" : "none");
    free(three);
    return 0;
}
