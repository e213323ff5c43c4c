// ed 1.5's display: the number of columns is read once, and lines are printed by it, while a handler that knows better
// has written it.
// variable: window_columns_
// pattern: RW
// fail-if: output=resized\n72
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int window_columns_ = 72;
static volatile int window_lines_ = 22;
static pthread_t editor;

static void sigwinch_handler(int signo) {
    (void)signo;
    window_lines_ = 10;
    window_columns_ = 40; // REMOTE
    if (write(1, "resized\n", 8) != 8) abort();
}

static void display_lines(int from, int to) {
    int columns = window_columns_; // LOCAL
    for (int line = from; line <= to; line++) {
        volatile int text = line;
        for (int i = 0; i < 30; i++) text = text * 7 + i;
        char out[3] = {'0' + columns / 10, '0' + columns % 10, '\n'};
        if (write(1, out, 3) != 3) abort();
    }
}

static void *terminal(void *arg) {
    volatile int dragged = 1;
    for (int step = 0; step < 100; step++) dragged = dragged * 3 + step;
    pthread_kill(editor, SIGWINCH);
    return arg;
}

int main(void) {
    struct sigaction action = {.sa_handler = sigwinch_handler, .sa_flags = SA_RESTART};
    sigaction(SIGWINCH, &action, NULL);
    editor = pthread_self();
    pthread_t thread;
    if (pthread_create(&thread, NULL, terminal, NULL) != 0) exit(2);
    volatile int command = 1;
    for (int i = 0; i < 60; i++) command = command * 3 + i;
    display_lines(1, 6);
    signal(SIGWINCH, SIG_IGN);
    pthread_join(thread, NULL);
    return 0;
}
