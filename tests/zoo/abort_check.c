// A program's own check of its state.
// kind: abort
#include <stdio.h>
#include <stdlib.h>
enum state { CLOSED, OPEN, BROKEN };
static enum state state = CLOSED;
static void step(int input) {
    if (input == 7) state = (enum state)(state + 2);
    else if (input == 5) state = (enum state)(state + 3); // CAUSE
    else state = input % 2 ? OPEN : CLOSED;
}
static void check(void) {
    if (state > BROKEN) {
        fprintf(stderr, "impossible state\n");
        abort();
    }
}
int main(void) {
    for (int input = 0; input < 10; input++) {
        step(input);
        check();
    }
    return 0;
}
