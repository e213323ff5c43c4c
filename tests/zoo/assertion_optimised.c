// The same in an optimised program, through a queue.
// known: wrong
// held: out
// kind: assertion
// flags: -O2
#include <assert.h>
#include <stdio.h>
struct queue { int cells[8]; unsigned head, count; };
static struct queue queue;
__attribute__((noinline)) static void put(struct queue *queue, int value) {
    queue->cells[(queue->head + queue->count) % 8] = value;
    queue->count++;
}
__attribute__((noinline)) static int take(struct queue *queue) {
    int value = queue->cells[queue->head % 8];
    queue->head++;
    queue->count -= 2; // CAUSE
    return value;
}
__attribute__((noinline)) static void check(const struct queue *queue) { assert(queue->count <= 8); }
int main(void) {
    put(&queue, 1);
    check(&queue);
    printf("%d\n", take(&queue));
    check(&queue);
    return 0;
}
