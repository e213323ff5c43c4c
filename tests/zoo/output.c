// The printed sum is wrong.
// kind: output
// expected: sum 5050\n
#include <stdio.h>
static int sum_to(int n) {
    int sum = 0;
    for (int at = 1; at < n; at++) sum += at; // CAUSE
    return sum;
}
int main(void) {
    int sum = sum_to(100);
    printf("sum %d\n", sum);
    return 0;
}
