// A member that whoever allocates forgets.
// held: out
// kind: uninitialised
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *next; int value; };
static struct node *node(int value) {
    struct node *made = malloc(sizeof *made); // CAUSE
    made->value = value;
    return made;
}
static int sum(const struct node *node) {
    int sum = 0;
    for (; node; node = node->next) sum += node->value;
    return sum;
}
int main(void) {
    char *text = malloc(sizeof(struct node));
    memset(text, 'q', sizeof(struct node));
    free(text);
    free(malloc(100));
    char *other = malloc(sizeof(struct node));
    memset(other, 'r', sizeof(struct node));
    struct node *first = node(1);
    first->next = NULL;
    free(other);
    first->next = node(2);
    memset(first->next, 0, 0);
    printf("%d\n", sum(first));
    return 0;
}
