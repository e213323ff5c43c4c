// Thread-local storage in every model, in several threads, also in a library loaded late.
// variants: pie nopie debug musl
// lib: tls.c
#include "guest.h"
#include <dlfcn.h>
__thread int local_exec = 1;
__thread int initial_exec __attribute__((tls_model("initial-exec"))) = 2;
__thread int general __attribute__((tls_model("global-dynamic"))) = 3;
static __thread int local_dynamic __attribute__((tls_model("local-dynamic"))) = 4;
static __thread long zeroed[1000];
static int (*sum)(int);
static int *(*address)(void);
static int *main_address;
static void *work(void *arg) {
    int n = (int)(long)arg;
    local_exec += n, initial_exec += n, general += n, local_dynamic += n;
    zeroed[999] += n;
    *address() += n;
    CHECK(address() != main_address || n == 0);
    long r = local_exec * 10000 + initial_exec * 1000 + general * 100 + local_dynamic * 10 + zeroed[999];
    return (void *)(r * 10000 + sum(n) + *address());
}
int main(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libtls.so", getenv("GUEST_LIBS"));
    void *lib = dlopen(path, RTLD_NOW);
    CHECK(lib);
    sum = (int (*)(int))dlsym(lib, "tls_sum");
    address = (int *(*)(void))dlsym(lib, "tls_address");
    CHECK(sum && address);
    main_address = address();
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) CHECK(!pthread_create(&threads[i], NULL, work, (void *)(i + 1)));
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(threads[i], &result);
        say("thread %d: %ld", i, (long)result);
    }
    say("main: %ld", (long)work(0));
}
