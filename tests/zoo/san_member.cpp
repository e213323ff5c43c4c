// UndefinedBehaviorSanitizer sees a member of a null pointer.
// kind: sanitizer
// flags: -fsanitize=undefined -fno-sanitize-recover=all
#include <cstdio>
#include <cstring>
struct account { const char *name; long balance; };
static account accounts[2] = {{"ann", 10}, {"bob", 20}};
static account *find(const char *name) {
    for (account &one : accounts)
        if (std::strcmp(one.name, name) == 0) return &one;
    return nullptr; // CAUSE
}
int main() {
    std::printf("%ld\n", find("bob")->balance);
    std::printf("%ld\n", find("eve")->balance);
    return 0;
}
