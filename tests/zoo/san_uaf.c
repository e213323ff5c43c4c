// AddressSanitizer sees that a session is used after it was closed.
// kind: sanitizer
// flags: -fsanitize=address
#include <stdio.h>
#include <stdlib.h>
struct session { int user, hits; };
static struct session *table[3];
static void expire(int oldest) {
    for (int at = 0; at <= oldest; at++)
        free(table[at]); // CAUSE
}
static int visit(int at) { return ++table[at]->hits; }
int main(void) {
    for (int at = 0; at < 3; at++) {
        table[at] = malloc(sizeof *table[at]);
        table[at]->user = at;
        table[at]->hits = 0;
    }
    expire(1);
    printf("%d\n", visit(2));
    printf("%d\n", visit(1));
    return 0;
}
