// Inlined calls in inlined calls, static functions, several parts, a table of pointers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline __attribute__((always_inline)) int square(int x)
{
    return x * x;
}

static inline __attribute__((always_inline)) int sum_of_squares(int a, int b)
{
    int left = square(a);
    int right = square(b);
    return left + right;
}

__attribute__((noinline)) int area(int width, int height)
{
    if (width < 0 || height < 0) {
        fprintf(stderr, "negative: %d %d\n", width, height);
        abort();
    }
    return sum_of_squares(width, height) - 2 * width * height;
}

static __attribute__((noinline)) int apply(int (*f)(int, int), int n)
{
    int total = 0;
    for (int i = 0; i < n; i++)
        total += f(i, n);
    return total;
}

struct node {
    struct node *next;
    int value;
};

static int length(const struct node *list)
{
    int n = 0;
    for (; list; list = list->next)
        n++;
    return n;
}

int main(int argc, char **argv)
{
    struct node list = { NULL, argc };
    int total = apply(area, argc + 3);
    char text[64];
    snprintf(text, sizeof text, "%s %d %d", argv[0], total, length(&list));
    return strlen(text) > 100;
}
