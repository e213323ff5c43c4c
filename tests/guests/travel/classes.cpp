// C++ to print: classes, containers, templates, exceptions.
// variants: debug
#include "guest.h"
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace zoo {
struct Animal {
    virtual ~Animal() = default;
    virtual std::string sound() const = 0;
    int legs = 4;
};
struct Bird : Animal {
    Bird() { legs = 2; }
    std::string sound() const override { return "chirp"; }
};
template <typename T, int Size> struct Ring {
    T values[Size] = {};
    int at = 0;
    void push(T value) {
        values[at++ % Size] = value;  // MARK: push
    }
};
enum class Size { Small, Large };
}  // namespace zoo

static int caught;

static int checked(const std::vector<int> &numbers, int at) {
    if (at >= (int)numbers.size()) throw std::out_of_range("too far: " + std::to_string(at));  // MARK: throw
    return numbers[at];
}

static int show(const std::vector<int> &numbers, const std::map<std::string, int> &ages,
                const zoo::Animal &animal, const zoo::Ring<double, 3> &ring, zoo::Size size,
                const std::unique_ptr<std::string> &text) {
    return (int)(numbers.size() + ages.size() + animal.legs + ring.at + (int)size + text->size());  // MARK: show
}

int main() {
    std::vector<int> numbers{1, 2, 3, 5, 8};
    std::map<std::string, int> ages{{"ada", 36}, {"alan", 41}};
    zoo::Bird bird;
    zoo::Ring<double, 3> ring;
    for (int i = 0; i < 4; i++) ring.push(i * 1.5);
    auto text = std::make_unique<std::string>("hello");
    int total = show(numbers, ages, bird, ring, zoo::Size::Large, text);
    for (int i = 3; i < 7; i++) {
        try {
            total += checked(numbers, i);
        } catch (const std::out_of_range &error) {
            caught++;  // MARK: catch
        }
    }
    say("%d %d %s", total, caught, bird.sound().c_str());
    return 0;
}
