// Fifty steps, each with a system call; reads what it may tell nobody.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int counter;
char secret[64];

static __attribute__((noinline)) void step(int n) {
    for (int i = 0; i < 20 + n; i++) counter += __builtin_popcount(i * n);
    if (write(1, ".", 1) != 1) _exit(9); // the call
}

int main(void) {
    if (read(0, secret, sizeof secret) < 0) return 1;
    const char *needed = getenv("NEEDED");
    for (int n = 0; needed && needed[n] == 'a'; n++) step(n);
    for (int n = 0; n < 50; n++) step(n);
    return 0;
}
