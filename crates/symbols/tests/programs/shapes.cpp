// Namespaces, templates, classes, lambdas, overloads, operators, anonymous namespaces, exceptions.
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace geometry {
template <typename T> class Box {
public:
    Box(T width, T height) : width_(width), height_(height) {}
    ~Box() { count--; }
    __attribute__((noinline)) T area() const { return width_ * height_; }
    bool operator<(const Box &other) const { return area() < other.area(); }
    static int count;

private:
    T width_, height_;
};
template <typename T> int Box<T>::count = 0;

__attribute__((noinline)) int scale(int x) { return x * 3; }
__attribute__((noinline)) double scale(double x) { return x * 3; }
} // namespace geometry

namespace {
__attribute__((noinline)) int hidden(int x)
{
    if (x > 1000)
        throw std::runtime_error("too large");
    return x + 1;
}
} // namespace

struct Base {
    virtual ~Base() = default;
    virtual int run(int x) = 0;
};

struct Derived : Base {
    __attribute__((noinline)) int run(int x) override
    {
        std::vector<int> values;
        for (int i = 0; i < x; i++)
            values.push_back(hidden(i));
        auto add = [&](int y) __attribute__((noinline)) { return y + (int)values.size(); };
        return add(x);
    }
};

int main(int argc, char **)
{
    geometry::Box<int> small(argc, 2);
    geometry::Box<double> large(argc, 2.5);
    std::map<std::string, int> counts;
    counts["a"] = geometry::scale(argc);
    counts["b"] = (int)geometry::scale(1.5 * argc);
    Derived derived;
    Base *base = &derived;
    int result = base->run(argc + 5) + small.area() + (int)large.area();
    try {
        result += hidden(argc + 2000);
    } catch (const std::exception &) {
        result += counts["b"];
    }
    return result > 100000 || small < small;
}
