// Synchronisation that isn't seen: atomic instructions of the program's own.
// variants: pie static
// flags: -pthread
#include <stdatomic.h>
#include <stdio.h>
static atomic_int count;
int main(void) {
    atomic_fetch_add(&count, 1);
    printf("%d\n", count);
    return 0;
}
