// The same through registers only: an optimised program.
// held: out
// kind: null-pointer
// flags: -O2
#include <stdio.h>
#include <stdlib.h>
struct shape { int sides; double (*area)(const struct shape *, double); };
static double square(const struct shape *shape, double x) { return shape->sides * x * x / 4; }
static struct shape *shapes[8];
__attribute__((noinline)) static struct shape *shape(int sides) {
    struct shape *made = malloc(sizeof *made);
    made->sides = sides;
    made->area = square;
    return made;
}
__attribute__((noinline)) static void clear(int from, int to) {
    for (int at = from; at < to; at++) shapes[at] = NULL; // CAUSE
}
__attribute__((noinline)) static double total(int count, double x) {
    double sum = 0;
    for (int at = 0; at < count; at++) sum += shapes[at]->area(shapes[at], x);
    return sum;
}
int main(void) {
    for (int at = 0; at < 8; at++) shapes[at] = shape(at + 3);
    printf("%f\n", total(8, 2));
    clear(5, 6);
    printf("%f\n", total(8, 3));
    return 0;
}
