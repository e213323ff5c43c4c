// UndefinedBehaviorSanitizer sees a division by zero.
// held: out
// kind: sanitizer
// flags: -fsanitize=undefined -fno-sanitize-recover=all
#include <stdio.h>
struct group { int sum, members; };
static void leave(struct group *group, int score) {
    group->sum -= score;
    group->members--; // CAUSE
}
static int average(const struct group *group) { return group->sum / group->members; }
int main(void) {
    struct group group = {12, 2};
    leave(&group, 4);
    printf("%d\n", average(&group));
    leave(&group, 8);
    printf("%d\n", average(&group));
    return 0;
}
