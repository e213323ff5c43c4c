// An order of three: the request is parsed, checked and sent by three threads that nobody keeps in order. Only sent before
// checked before parsed is wrong.
#include "bug.h"
static volatile int stage;
static void *parser(void *arg) { work(40); if (stage == 2) stage = 3; return arg; }
static void *checker(void *arg) { work(40); if (stage == 1) stage = 2; return arg; }
static void *sender(void *arg) { work(40); if (stage == 0) stage = 1; return arg; }
int main(void) {
    pthread_t threads[] = {start(parser, NULL), start(checker, NULL), start(sender, NULL)};
    for (int i = 0; i < 3; i++) join(threads[i]);
    assert(stage != 3);
    return 0;
}
