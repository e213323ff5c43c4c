// Lines to step over, into and out of: loops on one line, recursion, calls through pointers and the linkage table, inlined
// calls, long jumps.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef LOOPS
#define LOOPS 2000
#endif

volatile int sink;
static jmp_buf buffer;

__attribute__((noinline)) int leaf(int n) {
    int twice = n * 2;
    sink = twice;
    return twice + 1;
}

__attribute__((noinline)) void deepest(int n) {
    sink = n;
}

static inline __attribute__((always_inline)) int inlined(int n) {
    int more = n + sink;
    deepest(more);
    return more * 3;
}

__attribute__((noinline)) int outer(int n) {
    int a = leaf(n);
    int b = inlined(a);
    return a + b;
}

__attribute__((noinline)) int fib(int n) {
    if (n < 2)
        return n;
    int a = fib(n - 1);
    int b = fib(n - 2);
    return a + b;
}

__attribute__((noinline)) void jumps(int n) {
    if (n == 0)
        longjmp(buffer, 7);
    jumps(n - 1);
}

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return x - y;
}

int main(void) {
    int sum = 0;
    int values[5] = {5, 3, 1, 4, 2};
    for (int i = 0; i < LOOPS; i++) sum += leaf(i);
    sum += outer(4);
    sum += fib(6);
    int (*pointer)(int) = leaf;
    sum += pointer(3);
    qsort(values, 5, sizeof *values, compare);
    if (setjmp(buffer) == 0) {
        sum += 1;
        jumps(5);
        sum += 100000;
    } else {
        sum += 2;
    }
    for (int i = 0; i < 3; i++) {
        sum += i;
        sum ^= sink;
    }
    printf("%d\n", sum + values[0]);
    return 0;
}
