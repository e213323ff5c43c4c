// What a handler and the thread that it interrupts share lies in the heap, and no variable at a fixed address tells: the block is found by
// following the value that the assertion looked at. An arrival that the handler counts in the midst of the main loop's count is lost.
// variable: allocated at heap_handler.c:38
// pattern: RWW
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

struct desk {
    char name[48];
    volatile int waiting;
    char more[48];
};

static struct desk *desk;
static volatile int arrived;

static void on_timer(int signo) {
    (void)signo;
    if (arrived >= 40) return;
    arrived = arrived + 1;
    desk->waiting = desk->waiting + 1; // REMOTE
}

static void serve(int work) {
    int waiting = desk->waiting; // LOCAL
    volatile int effort = work;
    for (int i = 0; i < 10; i++) effort = effort * 3 + i;
    desk->waiting = waiting + 1; // LOCAL
}

int main(void) {
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {0};
    sigaction(SIGALRM, &action, NULL);
    desk = calloc(1, sizeof *desk);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int work = 0; work < 30; work++) {
        serve(work);
        volatile int pause = work;
        for (int i = 0; i < 40; i++) pause = pause * 5 + i;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    assert(desk->waiting == 30 + arrived);
    return 0;
}
