// AddressSanitizer sees a write behind the end of a block.
// kind: sanitizer
// flags: -fsanitize=address
#include <stdio.h>
#include <stdlib.h>
static void squares(int *into, int count) {
    for (int at = 0; at <= count; at++)
        into[at] = at * at; // CAUSE
}
int main(void) {
    int count = 10;
    int *other = malloc(3 * sizeof *other);
    int *all = malloc(count * sizeof *all);
    other[0] = 1;
    squares(all, count);
    printf("%d\n", all[count - 1] + other[0]);
    return 0;
}
