// A list's node whose neighbour was taken out without a look at what is behind it.
// kind: null-pointer
#include <stdio.h>
#include <stdlib.h>
struct node { struct node *next; int value; };
struct list { struct node *first, *last; };
static void add(struct list *list, int value) {
    struct node *node = malloc(sizeof *node);
    node->value = value;
    node->next = NULL;
    if (list->last) list->last->next = node; else list->first = node;
    list->last = node;
}
static void drop_first(struct list *list) {
    struct node *node = list->first;
    list->first = node->next;
    if (list->first == NULL) list->last = NULL;
    free(node);
}
static void reset(struct list *list) {
    list->first = NULL; // CAUSE
}
static void append(struct list *list, int value) {
    struct node *at = list->first;
    while (at->next) at = at->next;
    at->next = malloc(sizeof *at);
    at->next->value = value;
    at->next->next = NULL;
}
int main(void) {
    struct list list = {0};
    add(&list, 1);
    add(&list, 2);
    drop_first(&list);
    reset(&list);
    append(&list, 3);
    return 0;
}
