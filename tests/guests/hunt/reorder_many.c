// All setters before one checker: eight threads set a flag and then its partner, one looks whether both agree. Wrong only if
// it looks when no setter has come further than the first step.
#include "bug.h"
static volatile int first, second;
static void *setter(void *arg) { work(30); first = 1; work(3); second = -1; return arg; }
static void *checker(void *arg) {
    work(30);
    int one = first, two = second;
    assert((one == 0 && two == 0) || two == -1);
    return arg;
}
int main(void) {
    pthread_t threads[9];
    for (int i = 0; i < 8; i++) threads[i] = start(setter, NULL);
    threads[8] = start(checker, NULL);
    for (int i = 0; i < 9; i++) join(threads[i]);
    return 0;
}
