// Synchronisation that isn't seen: a futex by number.
// variants: pie
// flags: -pthread
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
static int word;
int main(void) {
    printf("before\n");
    fflush(stdout);
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
    printf("after\n");
    return 0;
}
