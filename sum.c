#include <stdio.h>
struct point { int x, y; struct point *next; };
static long total;
static __attribute__((noinline)) int weigh(struct point *p, int scale)
{
    int sum = p->x * scale + p->y;
    total += sum;
    return sum;
}
int main(void)
{
    struct point last = {3, 4, 0}, first = {1, 2, &last};
    int n = 0;
    for (struct point *p = &first; p; p = p->next)
        n += weigh(p, 10);
    printf("%d %ld\n", n, total);
    return 0;
}
