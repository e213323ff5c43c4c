// The second line is of another customer than it should be.
// known: wrong
// held: out
// kind: output
// expected: ann 10\nbob 20\n
#include <stdio.h>
#include <string.h>
struct row { char name[8]; int amount; };
static struct row rows[2];
static void put(int at, const char *name, int amount) {
    strcpy(rows[at].name, name);
    rows[at].amount = amount;
}
int main(void) {
    put(0, "ann", 10);
    put(1, "bob", 20);
    put(1, "cyd", 20); // CAUSE
    for (int at = 0; at < 2; at++) printf("%s %d\n", rows[at].name, rows[at].amount);
    return 0;
}
