// A ring for one producer, used by two: the place is read and moved on in two steps.
#include "bug.h"
#include <semaphore.h>
enum { SIZE = 4, EACH = 6 };
static sem_t room, filled;
static int ring[SIZE];
static volatile int in, out;
static void *producer(void *arg) {
    for (int i = 1; i <= EACH; i++) {
        work(90);
        sem_wait(&room);
        int place = in;
        ring[place % SIZE] = i;
        in = place + 1;
        sem_post(&filled);
    }
    return arg;
}
int main(void) {
    sem_init(&room, 0, SIZE);
    sem_init(&filled, 0, 0);
    pthread_t threads[] = {start(producer, NULL), start(producer, NULL)};
    int sum = 0;
    for (int i = 0; i < 2 * EACH; i++) {
        sem_wait(&filled);
        sum += ring[out % SIZE];
        ring[out % SIZE] = 0;
        out = out + 1;
        sem_post(&room);
    }
    join(threads[0]);
    join(threads[1]);
    assert(sum == EACH * (EACH + 1));
    return 0;
}
