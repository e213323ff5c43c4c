// bash 3.0's history: the count of this session's lines is read, and written back with one more. A hang-up in between
// saves the history if there are such lines, sees none yet, and the first line is lost.
// variable: history_lines_this_session
// pattern: RRW
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile int history_lines_this_session;
static volatile int history_length, saved, hung_up;
static char history[8][64];
static pthread_t shell;

static void maybe_append_history(void) {
    if (history_lines_this_session > 0) saved = history_length; // REMOTE
}

static void on_hangup(int signo) {
    (void)signo;
    maybe_append_history();
    hung_up = 1;
}

static void add_history(const char *line) {
    if (hung_up) return;
    int lines = history_lines_this_session; // LOCAL
    char *copy = history[history_length];
    do *copy++ = *line;
    while (*line++);
    history_length = history_length + 1;
    history_lines_this_session = lines + 1; // LOCAL
}

static void *terminal(void *arg) {
    volatile unsigned typed = 1;
    for (int key = 0; key < 60; key++) typed = typed * 31 + 7;
    pthread_kill(shell, SIGHUP);
    return arg;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_hangup, .sa_flags = SA_RESTART};
    sigaction(SIGHUP, &action, NULL);
    shell = pthread_self();
    pthread_t thread;
    if (pthread_create(&thread, NULL, terminal, NULL) != 0) exit(2);
    volatile unsigned prompt = 1;
    for (int i = 0; i < 60; i++) prompt = prompt * 17 + 3;
    add_history("make --jobs 2 all");
    while (!hung_up) sched_yield();
    pthread_join(thread, NULL);
    printf("%d of %d lines saved\n", saved, history_length);
    return saved == history_length ? 0 : 1;
}
