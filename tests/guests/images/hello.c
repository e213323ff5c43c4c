// Every kind of image: says hello, its arguments, and that constructors and atexit ran.
// variants: pie debug nopie static static-pie musl musl-static
// args: one two three
#include "guest.h"
static int constructed;
__attribute__((constructor)) static void construct(void) { constructed = 1; }
__attribute__((destructor)) static void destruct(void) { say("destructor"); }
static void at_exit(void) { say("atexit"); }
int main(int argc, char **argv) {
    CHECK(constructed);
    atexit(at_exit);
    printf("hello\n");
    for (int i = 1; i < argc; i++) printf("%s\n", argv[i]);
    fflush(stdout);
    return 0;
}
