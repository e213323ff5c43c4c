// Functions to be called in excursions, well-behaved and not.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int value = 7;
pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) void here(void) { value++; }

long add6(long a, long b, long c, long d, long e, long f) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f;
}
// Needs an aligned stack, and uses the heap and the standard output.
long talk(long n) {
    char *text = malloc(100);
    int len = snprintf(text, 100, "%.3f of %ld\n", n / 3.0, n);
    write(1, text, len);
    free(text);
    value = n;
    return len;
}
long crash(long addr) { return *(volatile long *)addr; }
long endless(void) {
    for (volatile long n = 0;; n++)
        ;
}
long quit(void) { exit(3); }
long lock(void) { return pthread_mutex_lock(&held); }

int main(void) {
    pthread_mutex_lock(&held);
    for (int n = 0; n < 3; n++)
        here();
    printf("%d\n", value);
    return value == 10 ? 0 : 1;
}
