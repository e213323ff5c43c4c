// Missed signal: a consumer sees an empty queue, and before it waits the producer has signalled already.
// The condition isn't looked at under the lock that the wait gives away: the wake-up is lost, and all wait for ever.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int items[16];
static volatile int put, taken;

static void wait_for_items(void) {
    if (put != taken) return;
    pthread_mutex_lock(&lock);
    pthread_cond_wait(&filled, &lock);
    pthread_mutex_unlock(&lock);
}

static void *consumer(void *arg) {
    (void)arg;
    long sum = 0;
    while (taken < 6) {
        while (put == taken) wait_for_items();
        sum += items[taken % 16];
        taken++;
    }
    return (void *)sum;
}

static int make_item(int n) {
    int item = n;
    for (int i = 0; i < 300; i++) item = item * 5 + i;
    return item & 0xff;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, consumer, NULL) != 0) exit(2);
    for (int n = 0; n < 6; n++) {
        int item = make_item(n);
        pthread_mutex_lock(&lock);
        items[n % 16] = item;
        put++;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    void *sum;
    pthread_join(thread, &sum);
    printf("sum %ld\n", (long)sum);
    return 0;
}
