// Two threads add to one number, with a known instruction in between; `race` lets them at the same time, `where` tells
// the address of the instruction that writes.
// variants: pie static
#include "guest.h"
static volatile long number;
extern char writes[];
static void *add(void *arg) {
    asm volatile("mov %0, %%rax\n\tadd $1, %%rax\n\t.globl writes\nwrites:\n\tmov %%rax, %0" : "+m"(number) : : "rax");
    return arg;
}
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "where")) {
        say("%p", (void *)writes);
        return 0;
    }
    int race = argc > 1;
    pthread_t t[2];
    for (int i = 0; i < 2; i++) {
        CHECK(!pthread_create(&t[i], NULL, add, NULL));
        if (!race) pthread_join(t[i], NULL);
    }
    for (int i = 0; race && i < 2; i++) pthread_join(t[i], NULL);
    say("%ld", number);
}
