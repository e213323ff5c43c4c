// Templates, virtual functions, references, namespaces and containers, for probes that look at them.
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

template <typename T> struct Box {
    T inside;
    int n;
    T &get(int plus)
    {
        n += plus; // a template's member
        return inside;
    }
};

class Base {
public:
    virtual ~Base() {}
    virtual int area() const = 0;
    int id = 7;
};

class Square : public Base {
    int side;

public:
    Square(int s) : side(s) {}
    int area() const override { return side * side; }
};

static std::map<std::string, int> table;
namespace {
int hidden = 5;
}
namespace a {
namespace b {
int deep = 9;
int twice(int n)
{
    hidden++;
    return 2 * n;
}
} // namespace b
} // namespace a

int total(const std::vector<std::unique_ptr<Base>> &all, int &count)
{
    int sum = 0;
    for (auto &one : all) {
        sum += one->area(); // references
        count++;
    }
    return sum;
}

int main()
{
    std::vector<std::unique_ptr<Base>> all;
    all.emplace_back(new Square(2));
    all.emplace_back(new Square(3));
    Box<std::string> box{"hello", 1};
    table["x"] = 3;
    table["y"] = 4;
    box.get(2) += "!";
    int count = 0;
    int sum = total(all, count);
    std::cout << sum << " " << count << " " << a::b::twice(4) << " " << box.inside << "\n"; // all of it
}
