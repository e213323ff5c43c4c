// The library throws: an index that was computed wrongly.
// held: out
// kind: exception
#include <cstdio>
#include <vector>
static unsigned place(unsigned day, unsigned month) {
    return (month - 1) * 31 + day + 12; // CAUSE
}
int main() {
    std::vector<int> days(372, 1);
    long sum = 0;
    for (unsigned month = 1; month <= 12; month++) {
        unsigned at = place(31, month);
        sum += days.at(at);
    }
    std::printf("%ld\n", sum);
}
