// One byte too many for a block: the neighbour's pointer is ruined.
// kind: heap-overflow
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct pair { char *key, *value; };
static void fill(char *into, char with, int count) {
    for (int at = 0; at < count; at++) into[at] = with; // CAUSE
}
int main(void) {
    char *text = malloc(24);
    struct pair *pair = malloc(sizeof *pair);
    pair->key = "key";
    pair->value = "value";
    fill(text, 'A', 40);
    printf("%zu\n", strlen(pair->key));
    return 0;
}
