// A flag that is set before the message is complete, in the last of several mailboxes.
#include "bug.h"
static struct { volatile int full; char text[32]; } boxes[6];
static void *poster(void *arg) {
    for (int i = 0; i < 6; i++) {
        work(80);
        boxes[i].full = 1;
        snprintf(boxes[i].text, sizeof boxes[i].text, "letter %d", i);
    }
    return arg;
}
static void *reader(void *arg) {
    for (int round = 0; round < 6; round++) {
        work(85);
        for (int i = 0; i < 6; i++)
            if (boxes[i].full) assert(boxes[i].text[0] == 'l');
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(poster, NULL), start(reader, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
