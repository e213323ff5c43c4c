// A timer's signals in the midst of computing, no system call near: the handler looks at what is being
// computed. With an argument: says what it has seen.
// variants: pie static
// flags: -O1
#include "guest.h"
#include <sys/time.h>
#define SAMPLES 300
static volatile unsigned long state = 88172645463325252, seen, samples;
static void handler(int sig) {
    (void)sig;
    seen = seen * 31 + state;
    samples++;
}
static unsigned long mix(unsigned long value, int depth) {
    value ^= value << 13;
    value ^= value >> 7;
    return depth == 0 ? value ^ value << 17 : mix(value, depth - 1) + 1;
}
int main(int argc, char **argv) {
    (void)argv;
    signal(SIGALRM, handler);
    struct itimerval often = {{0, 100}, {0, 100}}, never = {0};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (samples < SAMPLES)
        for (int i = 0; i < 100; i++) state = mix(state, i % 4);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    if (argc > 1) say("%lu: %lx", samples, seen);
    else say("sampled");
}
