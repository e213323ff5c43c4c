// A weak pointer's target is gone; lock() gives an empty one.
// known: wrong
// held: out
// kind: null-pointer
#include <cstdio>
#include <memory>
#include <string>
struct Session { std::string user; int uses = 0; };
struct Cache {
    std::shared_ptr<Session> held;
    std::weak_ptr<Session> last;
    void put(const char *user) { held = std::make_shared<Session>(); held->user = user; last = held; }
    void drop() { held = nullptr; } // CAUSE
    int use() { return ++last.lock()->uses; }
};
int main() {
    Cache cache;
    cache.put("ann");
    std::printf("%d\n", cache.use());
    cache.drop();
    std::printf("%d\n", cache.use());
}
