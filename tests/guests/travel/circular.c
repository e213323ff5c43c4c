// A list that must stay circular: one of many insertions and removals breaks it.
// variants: pie
// flags: -O0
// args: 4000
//
// While `locked`, it may be in pieces: what must never be true is `!locked && !is_circular()`.
#include "guest.h"
struct node {
    struct node *next, *before;
    int value;
};
static struct node first = {&first, &first, 0};
static int length = 1, operations;
static volatile int locked;

// Follows both directions: each must come back to where it began after all nodes.
int is_circular(void) {
    struct node *forth = &first, *back = &first;
    for (int i = 0; i < length; i++) {
        if (!forth || !back) return 0;
        forth = forth->next;
        back = back->before;
        if (i < length - 1 && (forth == &first || back == &first)) return 0;
    }
    return forth == &first && back == &first;
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

// Forgets the first node, and the lock.
static void remove_last_wrongly(void) {
    struct node *last = first.before;
    last->before->next = NULL;  // MARK: broken
    first.before = last->before;
    length--;
}

static void operation(uint64_t choice) {
    operations++;
    locked = 1;
    if (choice % 3 == 0)
        remove_after(&first);
    else
        insert(choice % 2 ? &first : first.next, (int)(choice % 1000));
    locked = 0;
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
