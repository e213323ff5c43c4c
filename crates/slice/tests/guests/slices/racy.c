// The paper's first example: an assertion in one thread is broken by what another has written.
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>

static int x;
static int y, z;
static sem_t go, done;

static void *second(void *unused)
{
    (void)unused;
    sem_wait(&go);
    z = 4;             // in
    y = 9;             // out
    x = z + 1;         // in
    sem_post(&done);
    return 0;
}

int main(void)
{
    pthread_t thread;
    int k;
    sem_init(&go, 0, 0);
    sem_init(&done, 0, 0);
    pthread_create(&thread, 0, second, 0);   // in
    x = 1;
    k = x + y;         // out
    k = x;             // moved
    sem_post(&go);
    sem_wait(&done);
    k = x * 2 - k;     // in
    assert(k == 1);    // in
    return 0;
}
