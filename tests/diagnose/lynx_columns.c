// lynx 2.8.7's highlighting: the number of columns is read twice for one link; a resize in between makes a link
// that is cut for one width and drawn for another.
// variable: LYcols
// pattern: RWR
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile int LYcols = 80;
static volatile int LYlines = 24;
static pthread_t browser;
static int wrong;

static void size_change(int signo) {
    (void)signo;
    LYlines = 30;
    LYcols = LYcols == 80 ? 100 : 80; // REMOTE
}

static int width_of(int link) {
    int width = link;
    for (int i = 0; i < 12; i++) width = (width * 75 + 74) % 65537;
    return width % 40;
}

static void LYhighlight(int link) {
    int end = LYcols - 1; // LOCAL
    int offset = width_of(link);
    int length = end - offset;
    int blank = LYcols - offset - length; // LOCAL
    if (blank != 1) wrong++;
}

static void *terminal(void *arg) {
    for (int i = 0; i < 4; i++) {
        volatile int dragged = i;
        for (int step = 0; step < 80; step++) dragged = dragged * 3 + step;
        pthread_kill(browser, SIGWINCH);
    }
    return arg;
}

int main(void) {
    struct sigaction action = {.sa_handler = size_change, .sa_flags = SA_RESTART};
    sigaction(SIGWINCH, &action, NULL);
    browser = pthread_self();
    pthread_t thread;
    if (pthread_create(&thread, NULL, terminal, NULL) != 0) exit(2);
    for (int link = 0; link < 20; link++) {
        LYhighlight(link);
        volatile int drawn = link;
        for (int i = 0; i < 40; i++) drawn = drawn * 5 + i;
    }
    pthread_join(thread, NULL);
    printf("%d links drawn wrong\n", wrong);
    return wrong != 0;
}
