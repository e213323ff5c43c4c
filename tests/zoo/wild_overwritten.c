// A name that is longer than its field runs into the pointer behind it.
// held: out
// kind: wild-pointer
#include <stdio.h>
#include <string.h>
struct entry { char name[8]; int *count; };
static int counts[2];
static struct entry entries[2];
static void name(struct entry *entry, const char *text) {
    strcpy(entry->name, text); // CAUSE
}
int main(int argc, char **argv) {
    (void)argv;
    for (int at = 0; at < 2; at++) entries[at].count = &counts[at];
    name(&entries[0], "short");
    name(&entries[1], argc > 5 ? "x" : "a_rather_long");
    for (int at = 0; at < 2; at++) *entries[at].count += 1;
    printf("%d\n", counts[0]);
    return 0;
}
