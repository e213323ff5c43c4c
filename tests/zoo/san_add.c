// UndefinedBehaviorSanitizer sees a sum that is too large.
// kind: sanitizer
// flags: -fsanitize=undefined -fno-sanitize-recover=all
#include <stdio.h>
static int total(const int *prices, int count) {
    int sum = 0;
    for (int at = 0; at < count; at++)
        sum += prices[at]; // CAUSE
    return sum;
}
int main(void) {
    int prices[] = {2000000000, 100000000, 60000000};
    printf("%d\n", total(prices, 3));
    return 0;
}
