// Values of all shapes: each line that it prints is an expression, and the text that a debugger must show for it. Behind
// a slash, the way to a part of it: names of parts, with slashes between them.
#include <array>
#include <cstdio>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

enum Color { RED, GREEN = 5, BLUE };
enum class Mode { Off, On = 3 };

struct Flags {
    unsigned low : 3;
    int middle : 5;
    unsigned long high : 40;
};

union Both {
    int number;
    char letters[4];
};

struct Base {
    int id = 41;
};

struct Derived : Base {
    double weight = 2.5;
    Derived *self = this;
};

struct Node {
    int value;
    Node *next;
};

int counter = 77;
static long hidden = -5;

__attribute__((noinline)) void look(int argument, const std::string &name) {
    asm volatile("" : : "r"(&name), "r"(argument) : "memory");
}

int main() {
    Color color = GREEN;
    Mode mode = Mode::On;
    Flags flags = {5, -3, 123456789012};
    Both both = {0x41424344};
    Derived derived;
    Node second = {2, nullptr}, first = {1, &second};
    int grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
    int many[1000];
    for (int i = 0; i < 1000; i++)
        many[i] = i * i;
    std::string word = "hello \"you\"\n", empty, longer(300, 'x');
    std::string_view part = std::string_view(word).substr(0, 5);
    std::vector<int> numbers = {1, 2, 3};
    std::vector<std::string> words = {"a", "bc"};
    std::vector<int> none;
    std::array<short, 3> fixed = {7, 8, 9};
    std::map<std::string, int> ages = {{"ann", 31}, {"bob", 42}, {"cy", 5}};
    std::map<int, double> prices;
    for (int i = 0; i < 500; i++)
        prices[i] = i / 2.0;
    std::set<long> set = {30, 10, 20};
    std::unordered_map<int, std::string> lookup = {{9, "nine"}};
    std::list<char> letters = {'a', 'b'};
    std::deque<int> queue;
    for (int i = 0; i < 300; i++)
        queue.push_back(i);
    for (int i = 0; i < 7; i++)
        queue.pop_front();
    std::unique_ptr<Node> owned(new Node{8, nullptr}), unowned;
    std::shared_ptr<int> shared = std::make_shared<int>(99);
    std::optional<int> some = 6, nothing;
    std::pair<int, char> pair = {1, 'z'};
    std::string &alias = word;
    std::variant<int, double, std::string> number = 4, real = 0.5, text = std::string("inside");
    std::variant<char, long> small = 77L;

    look(12, word);

    printf("color = GREEN\n");
    printf("mode = Mode::On\n");
    printf("flags = {low = %u, middle = %d, high = %lu}\n", flags.low, flags.middle, (unsigned long)flags.high);
    printf("flags/middle = %d\n", flags.middle);
    printf("both/number = %d\n", both.number);
    printf("both/letters = \"%.4s\"\n", both.letters);
    printf("both/letters/[1] = %d '%c'\n", both.letters[1], both.letters[1]);
    printf("derived/Base/id = %d\n", derived.id);
    printf("derived/weight = %g\n", derived.weight);
    printf("derived/self/*/self/*/Base/id = %d\n", derived.id);
    printf("first/next/*/value = %d\n", first.next->value);
    printf("first.next->next = 0x0\n");
    printf("grid = {{1, 2, 3}, {4, 5, 6}}\n");
    printf("grid/[1]/[2] = %d\n", grid[1][2]);
    printf("many/[999] = %d\n", many[999]);
    printf("word = \"hello \\\"you\\\"\\n\"\n");
    printf("alias = \"hello \\\"you\\\"\\n\"\n");
    printf("empty = \"\"\n");
    printf("part = \"%.*s\"\n", (int)part.size(), part.data());
    printf("numbers = {%d, %d, %d}\n", numbers[0], numbers[1], numbers[2]);
    printf("numbers/[2] = %d\n", numbers.at(2));
    printf("words = {\"%s\", \"%s\"}\n", words[0].c_str(), words[1].c_str());
    printf("words/[1] = \"%s\"\n", words[1].c_str());
    printf("none = {}\n");
    printf("fixed = {%d, %d, %d}\n", fixed[0], fixed[1], fixed[2]);
    printf("ages = {[\"ann\"] = %d, [\"bob\"] = %d, [\"cy\"] = %d}\n", ages["ann"], ages["bob"], ages["cy"]);
    printf("ages/[\"bob\"] = %d\n", ages["bob"]);
    printf("prices/[499] = %g\n", prices[499]);
    printf("set = {10, 20, 30}\n");
    printf("set/[0] = %ld\n", *set.begin());
    printf("lookup = {[9] = \"%s\"}\n", lookup[9].c_str());
    printf("letters = {%d 'a', %d 'b'}\n", 'a', 'b');
    printf("queue/[0] = %d\n", queue[0]);
    printf("queue/[292] = %d\n", queue[292]);
    printf("queue/[130] = %d\n", queue[130]);
    printf("owned/*/value = %d\n", owned->value);
    printf("unowned = <nothing>\n");
    printf("shared = %d\n", *shared);
    printf("some = %d\n", *some);
    printf("nothing = <nothing>\n");
    printf("pair = {first = 1, second = %d 'z'}\n", 'z');
    printf("number = %d\n", std::get<int>(number));
    printf("real = %g\n", std::get<double>(real));
    printf("text = \"%s\"\n", std::get<std::string>(text).c_str());
    printf("small = %ld\n", std::get<long>(small));
    printf("counter + 1 = %d\n", counter + 1);
    printf("hidden = %ld\n", hidden);
    printf("grid[1][0] * 2 = %d\n", grid[1][0] * 2);
    asm volatile("" : : "r"(&both), "r"(&first), "r"(&longer), "r"(&unowned) : "memory");
    return 0;
}
