// AddressSanitizer sees a read behind an array of a function.
// kind: sanitizer
// flags: -fsanitize=address
#include <cstdio>
static int sum(const int *from, int count) {
    int all = 0;
    for (int at = 0; at < count; at++)
        all += from[at]; // CAUSE
    return all;
}
int main() {
    int days[7] = {1, 2, 3, 4, 5, 6, 7};
    std::printf("%d\n", sum(days, 5));
    std::printf("%d\n", sum(days, 8));
    return 0;
}
