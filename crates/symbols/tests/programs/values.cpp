// Values as C++ has them.
#include <cstdio>
#include <string>
#include <vector>

namespace outer {
int level = 1;
namespace inner {
int level = 2;
enum class Mode { Off, On = 7 };
struct Point {
    int x, y;
    static int made;
    int sum() const { return x + y; }
};
int Point::made = 3;
} // namespace inner
template <typename T> struct Box {
    T value;
};
} // namespace outer

namespace {
int secret = 99;
}

struct Shape {
    virtual ~Shape() {}
    virtual int area() const { return 0; }
    int id = 1;
};

struct Square : Shape {
    int side = 4;
    int area() const override { return side * side; }
    int scaled(int by) const;
};

int Square::scaled(int by) const
{
    int local = side * by;
    std::printf("%d\n", local); // STOP
    return local;
}

outer::inner::Point point = {3, 4};
outer::inner::Mode mode = outer::inner::Mode::On;
outer::Box<int> box = {5};
Square square;
int number = 17;
int &reference = number;
bool flag = true;

int main()
{
    return square.scaled(3) + secret + outer::level + outer::inner::level + box.value
        + outer::inner::Point::made + point.sum() + int(mode) + square.area();
}
