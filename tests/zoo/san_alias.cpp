// AddressSanitizer sees a reference to an element of a vector that has moved.
// held: out
// kind: sanitizer
// flags: -fsanitize=address
#include <cstdio>
#include <vector>
int main() {
    std::vector<long> scores{3, 1, 2};
    long &best = scores[0];
    for (long n = 0; n < 10; n++)
        scores.push_back(n); // CAUSE
    best += 1;
    std::printf("%ld\n", best);
    return 0;
}
