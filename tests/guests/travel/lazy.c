// The first calls of functions in a library: each is bound when it is called.
// variants: debug
// flags: -fno-builtin -Wl,-z,lazy
#include "guest.h"
static int parsed, length;

int main(int argc, char **argv) {
    (void)argc;
    parsed = 1;  // MARK: first
    parsed = atoi("12");
    length = (int)strlen(argv[0]) > 0;
    parsed += getppid() > 0;
    parsed += length;  // MARK: last
    say("parsed %d", parsed);
    return 0;
}
