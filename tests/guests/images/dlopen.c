// Loads a library, calls both ways, unloads, loads again.
// variants: pie nopie musl
// lib: shared.c
#include "guest.h"
#include <dlfcn.h>
static int twice(int n) { return 2 * n; }
int main(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libshared.so", getenv("GUEST_LIBS"));
    for (int round = 0; round < 2; round++) {
        void *lib = dlopen(path, round ? RTLD_LAZY : RTLD_NOW);
        if (!lib) fprintf(stderr, "%s\n", dlerror());
        CHECK(lib);
        int (*add)(int) = (int (*)(int))dlsym(lib, "shared_add");
        int (*call)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(lib, "shared_call");
        int *counter = dlsym(lib, "shared_counter");
        say("add %d, call %d, counter %d", add(2), call(twice, 20), *counter);
        CHECK(!dlsym(lib, "no_such_symbol"));
        CHECK(dlclose(lib) == 0);
    }
    CHECK(!dlopen("/nonexistent.so", RTLD_NOW));
    say("done");
}
