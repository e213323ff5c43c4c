// An index that is one too large in an unchecked container: another object's table of functions is gone.
// held: out
// kind: heap-overflow
#include <cstdio>
#include <vector>
struct Shape {
    virtual ~Shape() = default;
    virtual double area() const { return 1; }
    double side = 2;
};
static void fill(long *cells, int count) {
    for (int at = 0; at <= count + 1; at++) cells[at] = 0x41414141; // CAUSE
}
int main() {
    long *cells = new long[3];
    Shape *shape = new Shape;
    fill(cells, 3);
    std::printf("%f\n", shape->area());
    delete shape;
    delete[] cells;
}
