// A reference into a vector is kept while the vector grows.
// held: out
// kind: use-after-free
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
struct Node { std::string *text; long weight; };
int main() {
    std::vector<Node> nodes;
    nodes.push_back({new std::string("first"), 1});
    Node &kept = nodes[0];
    for (int at = 0; at < 100; at++) nodes.push_back({new std::string("more"), at}); // CAUSE
    std::vector<long> others(4, 77);
    std::printf("%zu\n", kept.text->size() + others.size());
}
