// AddressSanitizer's handler sees a null pointer: it is explained like every other one.
// kind: null-pointer
// flags: -fsanitize=address
#include <stdio.h>
#include <stddef.h>
struct node { int value; struct node *next; };
static struct node *last(struct node *of) {
    while (of->next) of = of->next;
    return of;
}
static struct node *cut(struct node *list) {
    last(list)->value = 0;
    return NULL; // CAUSE
}
int main(void) {
    struct node second = {2, NULL}, first = {1, &second};
    struct node *list = cut(&first);
    printf("%d\n", last(list)->value);
    return 0;
}
