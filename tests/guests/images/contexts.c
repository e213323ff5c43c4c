// makecontext/swapcontext: coroutines on their own stacks, switched many times.
// variants: pie debug static
#include "guest.h"
static ucontext_t main_context, contexts[3];
static int turn_sum;
static void body(int id, int rounds) {
    for (int i = 0; i < rounds; i++) {
        turn_sum += id * i;
        swapcontext(&contexts[id], &main_context);
    }
}
int main(void) {
    for (int i = 0; i < 3; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_size = 65536;
        contexts[i].uc_stack.ss_sp = malloc(65536);
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], (void (*)(void))body, 2, i, 1000 * (i + 1));
    }
    for (int round = 0; round < 1001; round++)
        for (int i = 0; i < 3; i++)
            if (round <= 1000 * (i + 1)) swapcontext(&main_context, &contexts[i]);
    say("sum %d", turn_sum);
    ucontext_t again;
    volatile int passes = 0;
    getcontext(&again);
    if (++passes < 5) setcontext(&again);
    say("passes %d", passes);
}
