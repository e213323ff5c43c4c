// A table that is only set up with an option that nobody gave.
// kind: null-pointer
#include <stdio.h>
#include <stdlib.h>
static int *table; // CAUSE
static void set_up(void) { table = calloc(16, sizeof *table); }
static int look_up(int key) { return table[key % 16]; }
int main(int argc, char **argv) {
    if (argc > 1 && argv[1][0] == 's') set_up();
    printf("%d\n", look_up(3));
    return 0;
}
