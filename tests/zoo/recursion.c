// A tree that has a circle in it.
// kind: stack-overflow
#include <stdio.h>
struct tree { struct tree *left, *right; int value; };
static int depth(const struct tree *tree) {
    if (!tree) return 0;
    int left = depth(tree->left), right = depth(tree->right); // CAUSE
    return 1 + (left > right ? left : right);
}
int main(void) {
    static struct tree a, b, c;
    a.left = &b;
    b.right = &c;
    c.left = &a;
    printf("%d\n", depth(&a));
    return 0;
}
