// Two buffers, swapped: one who writes has asked which is the front, and stays while they are swapped twice and the line is lost.
#include "bug.h"
static char buffers[2][256];
static atomic_int used[2], front, flushed, written;
static void *writer(void *arg) {
    for (int i = 0; i < 6; i++) {
        work(60);
        int mine = front;
        int place = atomic_fetch_add(&used[mine], 1);
        buffers[mine][place] = 'x';
        atomic_fetch_add(&written, 1);
    }
    return arg;
}
static void *flusher(void *arg) {
    for (int i = 0; i < 4; i++) {
        work(130);
        int old = front;
        front = 1 - old;
        int count = used[old];
        for (int at = 0; at < count; at++) {
            if (buffers[old][at] == 'x') flushed++;
            buffers[old][at] = 0;
        }
        used[old] = 0;
    }
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(writer, NULL), start(flusher, NULL)};
    join(threads[0]);
    join(threads[1]);
    for (int side = 0; side < 2; side++)
        for (int at = 0; at < used[side]; at++) flushed += buffers[side][at] == 'x';
    assert(flushed == written);
    return 0;
}
