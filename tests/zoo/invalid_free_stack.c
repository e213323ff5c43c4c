// A default that lies on the stack is freed like the rest.
// held: out
// kind: invalid-free
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct option { char *value; };
static void done(struct option *option) { free(option->value); }
int main(int argc, char **argv) {
    char usual[16] = "usual";
    struct option option;
    option.value = argc > 1 ? strdup(argv[1]) : usual; // CAUSE
    puts(option.value);
    done(&option);
    return 0;
}
