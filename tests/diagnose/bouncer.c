// bouncer 1.0's speed: a request is told to the timer's handler by is_changed, which is looked at twice; the handler
// takes the request before it in between, and one adjustment is made too many.
// variable: is_changed
// pattern: RWR
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile int is_changed;
static volatile int delay = 100, adjustments;
static int requests, merged;

static void on_timer(int signo) {
    (void)signo;
    if (!is_changed) return;
    adjustments = adjustments + 1;
    delay = delay - 1;
    is_changed = 0; // REMOTE
}

static void update_from_input(int key) {
    requests++;
    if (is_changed) merged++; // LOCAL
    volatile int speed = key;
    for (int i = 0; i < 6; i++) speed = speed * 3 + i;
    if (!is_changed) is_changed = 1; // LOCAL
    assert(adjustments <= requests - merged);
}

int main(void) {
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (int key = 0; key < 30; key++) {
        update_from_input(key);
        volatile int ball = key;
        for (int i = 0; i < 20; i++) ball = ball * 5 + i;
    }
    struct itimerval never = {0};
    setitimer(ITIMER_REAL, &never, NULL);
    if (is_changed) adjustments++;
    printf("%d requests, %d merged, %d adjustments\n", requests, merged, adjustments);
    assert(requests - merged == adjustments);
    return 0;
}
