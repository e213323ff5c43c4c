// A queue whose head is taken without a lock: who has read it is overtaken, and the node is gone when he looks at its next.
#include "bug.h"
struct node { _Atomic(struct node *) next; int value; atomic_int freed; };
static struct node nodes[16];
static _Atomic(struct node *) head;
static void *taker(void *arg) {
    for (int i = 0; i < 6; i++) {
        struct node *first = head;
        while (first != NULL) {
            struct node *next = first->next;
            assert(!first->freed);
            if (atomic_compare_exchange_strong(&head, &first, next)) {
                work(10);
                first->freed = 1;
                break;
            }
        }
        work(100);
    }
    return arg;
}
int main(void) {
    for (int i = 0; i < 15; i++) nodes[i].next = &nodes[i + 1];
    head = nodes;
    pthread_t threads[] = {start(taker, NULL), start(taker, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
