// A call through a function pointer of a table that has a hole.
// kind: null-pointer
#include <stdio.h>
#include <string.h>
static int add(int a, int b) { return a + b; }
static int times(int a, int b) { return a * b; }
struct op { const char *name; int (*run)(int, int); };
static struct op ops[3];
static void known(int at, const char *name, int (*run)(int, int)) {
    ops[at].name = name;
    ops[at].run = run;
}
static int apply(const char *name, int a, int b) {
    for (int at = 0; at < 3; at++)
        if (strcmp(ops[at].name, name) == 0) return ops[at].run(a, b);
    return 0;
}
int main(void) {
    known(0, "add", add);
    known(1, "times", times);
    known(2, "minus", NULL); // CAUSE
    printf("%d\n", apply("times", 6, 7));
    printf("%d\n", apply("minus", 6, 7));
    return 0;
}
