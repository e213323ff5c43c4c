// A mean of nothing.
// kind: division
#include <stdio.h>
static int mean(const int *values, int count) {
    int sum = 0;
    for (int at = 0; at < count; at++) sum += values[at];
    return sum / count;
}
static int kept(const int *values, int count, int limit) {
    int kept = 0; // CAUSE
    for (int at = 0; at < count; at++)
        if (values[at] < limit) kept++;
    return kept;
}
int main(void) {
    int values[] = {5, 9, 12};
    printf("%d\n", mean(values, kept(values, 3, 10)));
    printf("%d\n", mean(values, kept(values, 3, 2)));
    return 0;
}
