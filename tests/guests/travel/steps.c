// Something to step through: calls, loops, recursion, system calls, jumps out of functions.
// variants: debug pie
#include "guest.h"
static jmp_buf out;
static int numbers[8];
int calls;

static int add(int a, int b) {
    int sum = a + b;  // MARK: add
    calls++;
    return sum;
}

static int factorial(int n) {
    if (n < 2) return 1;  // MARK: factorial
    return n * factorial(n - 1);
}

static int loop(int count) {
    int total = 0;
    for (int i = 0; i < count; i++) {
        numbers[i % 8] = i * i;  // MARK: body
        total = add(total, numbers[i % 8]);
    }
    return total;  // MARK: loop-end
}

static void jump(int value) {
    if (value > 2) longjmp(out, value);
    jump(value + 1);
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;  // MARK: compare
}

int main(void) {
    int total = loop(5);  // MARK: first
    int product = factorial(5);
    int value = setjmp(out);  // MARK: setjmp
    if (!value) jump(0);
    char text[64];
    snprintf(text, sizeof text, "%d %d %d", total, product, value);  // MARK: text
    int sorted[5] = {3, 1, 4, 1, 5};
    qsort(sorted, 5, sizeof *sorted, compare);
    pid_t pid = getpid();
    CHECK(syscall(SYS_getppid) != pid);
    CHECK(write(1, text, strlen(text)) == (ssize_t)strlen(text));
    say(" %d%d%d%d%d", sorted[0], sorted[1], sorted[2], sorted[3], sorted[4]);
    return 0;  // MARK: last
}
