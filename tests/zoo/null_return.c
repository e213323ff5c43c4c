// A search that finds nothing returns NULL, and who asked doesn't look.
// kind: null-pointer
#include <stdio.h>
#include <string.h>
struct user { const char *name; int age; };
static struct user users[] = {{"ann", 31}, {"bob", 42}};
static struct user *find(const char *name) {
    for (unsigned at = 0; at < sizeof users / sizeof *users; at++)
        if (strcmp(users[at].name, name) == 0) return &users[at];
    return NULL; // CAUSE
}
static int age(const char *name) {
    struct user *user = find(name);
    return user->age;
}
int main(void) {
    printf("%d\n", age("bob"));
    printf("%d\n", age("cyd"));
    return 0;
}
