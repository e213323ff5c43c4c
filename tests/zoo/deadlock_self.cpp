// A lock that is taken again by who has it.
// known: wrong
// held: out
// kind: deadlock
#include <cstdio>
#include <map>
#include <mutex>
class Registry {
    std::mutex lock;
    std::map<int, int> values;
public:
    int get(int key) { std::lock_guard<std::mutex> hold(lock); return values[key]; }
    void move(int from, int to) {
        std::lock_guard<std::mutex> hold(lock);
        values[to] = get(from); // CAUSE
    }
};
int main() {
    Registry registry;
    registry.move(1, 2);
    std::printf("%d\n", registry.get(2));
}
