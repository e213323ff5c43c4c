// A list that must stay circular: one of many insertions and removals breaks it.
// variants: pie
// flags: -O0
// args: 4000
//
// Each of the two directions is circular after every single write, but for one.
#include "guest.h"
struct node {
    struct node *next, *before;
    int value;
};
static struct node first = {&first, &first, 0};
static int length = 1, operations;

// Follows both directions: each must come back to where it began. In the midst of an operation they
// may differ by a node.
int is_circular(void) {
    int left = length + 2;
    for (struct node *node = first.next; node != &first; node = node->next)
        if (!node || !left--) return 0;
    left = length + 2;
    for (struct node *node = first.before; node != &first; node = node->before)
        if (!node || !left--) return 0;
    return 1;
}

static void insert(struct node *after, int value) {
    struct node *node = malloc(sizeof *node);
    CHECK(node);
    node->value = value;
    node->next = after->next;
    node->before = after;
    after->next->before = node;
    after->next = node;
    length++;
}

static void remove_after(struct node *node) {
    struct node *gone = node->next;
    if (gone == &first) return;
    gone->next->before = node;
    node->next = gone->next;
    length--;
    free(gone);
}

// Forgets the first node.
static void remove_last_wrongly(void) {
    struct node *last = first.before;
    last->before->next = NULL;  // MARK: broken
    first.before = last->before;
    length--;
}

static void operation(uint64_t choice) {
    operations++;
    if (choice % 3 == 0)
        remove_after(&first);
    else
        insert(choice % 2 ? &first : first.next, (int)(choice % 1000));
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 4000;
    uint64_t seed = 7;
    for (int i = 0; i < count; i++) {
        if (i == count / 3 * 2) remove_last_wrongly();  // MARK: call
        else operation(next_random(&seed));
    }
    say("%d operations, %d nodes, %s", operations, length, is_circular() ? "circular" : "broken");
    return 0;
}
