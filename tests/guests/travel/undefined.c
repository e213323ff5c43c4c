// A condition whose own function crashes, waits or never returns in parts of the run.
// variants: pie
// flags: -O1
// args: pockets
//
// "pockets": it is false, crashes, is false, becomes true, never returns, is true, waits, is true.
// "gap": it is false, crashes, is true.
#include "guest.h"
enum mode { GOOD, CRASH, LOOP, LOCK };
static volatile enum mode mode;
static volatile int state;
static volatile long worked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) int is_wrong(void) {
    switch (mode) {
    case CRASH: return *(volatile int *)8;
    case LOOP:
        for (;;) worked++;
    case LOCK: pthread_mutex_lock(&lock); return 0;
    default: return state > 3;
    }
}

__attribute__((noinline)) static void work(void) {
    for (int i = 0; i < 40000; i++) worked += i % 3;
}

__attribute__((noinline)) static void set_mode(enum mode to) {
    work();
    mode = to;
    work();
}

__attribute__((noinline)) static void set_state(int to) {
    work();
    state = to;  // MARK: state
    work();
}

int main(int argc, char **argv) {
    int gap = argc > 1 && !strcmp(argv[1], "gap");
    pthread_mutex_lock(&lock);
    set_state(1);
    set_mode(CRASH);  // MARK: undefined
    set_state(2);
    if (gap) {
        set_state(5);
        set_mode(GOOD);  // MARK: defined
    } else {
        set_mode(GOOD);
        set_state(3);
        set_state(4);  // MARK: flips
        set_mode(LOOP);
        set_state(5);
        set_mode(GOOD);
        set_state(6);
        set_mode(LOCK);
        set_state(7);
        set_mode(GOOD);
    }
    pthread_mutex_unlock(&lock);
    say("state %d, wrong %d", state, is_wrong());
    return 0;
}
