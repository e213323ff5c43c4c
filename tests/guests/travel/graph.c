// A graph that must stay acyclic: edges are added, one of them closes a cycle.
// variants: pie
// flags: -O1
// args: 1
//
// 34,546 nodes and 421,576 edges, times the argument, always the same ones (FReD, section 5).
#include "guest.h"
enum { NODES = 34546, EDGES = 421576 };
static int nodes, edges;
static int *head;  // a node's newest edge, or -1
static int *next;  // the edge before it, of the same node
static int *to;    // where an edge leads
static char *colour;
static int *stack, *place;

// Depth first, without recursion; in linear time.
__attribute__((noinline)) int has_cycle(void) {
    if (!place) return 0;
    memset(colour, 0, nodes);
    for (int root = 0; root < nodes; root++) {
        if (colour[root]) continue;
        int depth = 0;
        stack[0] = root;
        place[0] = head[root];
        colour[root] = 1;
        while (depth >= 0) {
            int edge = place[depth];
            if (edge < 0) {
                colour[stack[depth--]] = 2;
                continue;
            }
            place[depth] = next[edge];
            int node = to[edge];
            if (colour[node] == 1) return 1;
            if (colour[node] == 2) continue;
            colour[node] = 1;
            stack[++depth] = node;
            place[depth] = head[node];
        }
    }
    return 0;
}

__attribute__((noinline)) static void add_edge(int from, int target) {
    to[edges] = target;
    next[edges] = head[from];
    head[from] = edges;  // MARK: linked
    edges++;
}

static uint64_t seed = 20150707;
static uint32_t random_below(uint32_t limit) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return (uint64_t)(uint32_t)(seed >> 32) * limit >> 32;
}

static void *some(size_t size) {
    void *memory = calloc(1, size);
    CHECK(memory);
    return memory;
}

int main(int argc, char **argv) {
    int scale = argc > 1 ? atoi(argv[1]) : 1;
    int total = EDGES * scale, closing = total / 5 * 3;
    nodes = NODES * scale;
    head = some(nodes * sizeof *head);
    memset(head, -1, nodes * sizeof *head);
    next = some(total * sizeof *next);
    to = some(total * sizeof *to);
    colour = some(nodes);
    stack = some(nodes * sizeof *stack);
    place = some(nodes * sizeof *place);
    while (edges < total) {
        int from = random_below(nodes - 1);
        int target = from + 1 + random_below(nodes - from - 1);
        add_edge(from, target);
        if (edges == closing) add_edge(target, from);  // MARK: closes
    }
    say("%d nodes, %d edges, %s", nodes, edges, has_cycle() ? "cyclic" : "acyclic");
    return 0;
}
