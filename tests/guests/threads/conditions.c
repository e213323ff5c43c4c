// Condition variables: a bounded queue with several producers and consumers, broadcast,
// and timed waits that time out and that do not.
// variants: pie static musl
#include "guest.h"
enum { ITEMS = 20000, SLOTS = 8 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER, go = PTHREAD_COND_INITIALIZER;
static long queue[SLOTS], sum;
static int head, tail, used, produced, consumed, started, gate;
static void *producer(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    while (produced < ITEMS) {
        if (used == SLOTS) { pthread_cond_wait(&not_full, &lock); continue; }
        queue[head++ % SLOTS] = produced++;
        used++;
        pthread_cond_signal(&not_empty);
    }
    pthread_cond_broadcast(&not_empty);
    pthread_cond_broadcast(&not_full);
    pthread_mutex_unlock(&lock);
    return NULL;
}
static void *consumer(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    while (consumed < ITEMS) {
        if (!used) { if (produced == ITEMS) break; pthread_cond_wait(&not_empty, &lock); continue; }
        sum += queue[tail++ % SLOTS];
        used--, consumed++;
        pthread_cond_signal(&not_full);
    }
    pthread_cond_broadcast(&not_empty);
    pthread_mutex_unlock(&lock);
    return NULL;
}
static void *waiter(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    started++;
    pthread_cond_signal(&not_empty);
    while (!gate) pthread_cond_wait(&go, &lock);
    pthread_mutex_unlock(&lock);
    return NULL;
}
int main(void) {
    pthread_t t[20];
    for (int i = 0; i < 6; i++) CHECK(!pthread_create(&t[i], NULL, i % 2 ? producer : consumer, NULL));
    for (int i = 0; i < 6; i++) pthread_join(t[i], NULL);
    say("consumed %d sum %ld", consumed, sum);
    for (int i = 0; i < 20; i++) CHECK(!pthread_create(&t[i], NULL, waiter, NULL));
    pthread_mutex_lock(&lock);
    while (started < 20) pthread_cond_wait(&not_empty, &lock);
    gate = 1;
    pthread_cond_broadcast(&go);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 20; i++) pthread_join(t[i], NULL);
    struct timespec past;
    clock_gettime(CLOCK_REALTIME, &past);
    past.tv_sec--;
    pthread_mutex_lock(&lock);
    int r = pthread_cond_timedwait(&go, &lock, &past);
    pthread_mutex_unlock(&lock);
    say("past deadline %d", r == ETIMEDOUT);
    struct timespec before, after, soon;
    clock_gettime(CLOCK_REALTIME, &before);
    soon = before;
    soon.tv_nsec += 20000000;
    if (soon.tv_nsec >= 1000000000) soon.tv_nsec -= 1000000000, soon.tv_sec++;
    pthread_mutex_lock(&lock);
    do r = pthread_cond_timedwait(&go, &lock, &soon); while (!r);
    pthread_mutex_unlock(&lock);
    clock_gettime(CLOCK_REALTIME, &after);
    long waited = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    say("soon %d %d", r == ETIMEDOUT, waited >= 20000000);
}
