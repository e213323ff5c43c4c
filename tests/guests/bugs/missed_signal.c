// Missed signal: a server looks for requests, finds none, and before it waits a client has put one and signalled already.
// It doesn't look under the lock that the wait gives away: the wake-up is lost, and both wait for ever.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t requested = PTHREAD_COND_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static volatile int requests[4];
static int answers;

static int find_request(void) {
    for (int i = 0; i < 4; i++)
        if (requests[i]) return i;
    return -1;
}

static void *server(void *arg) {
    long sum = 0;
    for (int served = 0; served < 6; served++) {
        int found;
        while ((found = find_request()) < 0) {
            pthread_mutex_lock(&lock);
            pthread_cond_wait(&requested, &lock);
            pthread_mutex_unlock(&lock);
        }
        pthread_mutex_lock(&lock);
        sum += requests[found];
        requests[found] = 0;
        answers++;
        pthread_cond_signal(&answered);
        pthread_mutex_unlock(&lock);
    }
    *(long *)arg = sum;
    return NULL;
}

static int make_request(int n) {
    int request = n;
    for (int i = 0; i < 300; i++) request = request * 5 + i;
    return (request & 0xff) + 1;
}

int main(void) {
    pthread_t thread;
    long sum = 0;
    if (pthread_create(&thread, NULL, server, &sum) != 0) exit(2);
    for (int n = 0; n < 6; n++) {
        int request = make_request(n);
        pthread_mutex_lock(&lock);
        requests[n % 4] = request;
        pthread_cond_signal(&requested);
        while (answers <= n) pthread_cond_wait(&answered, &lock);
        pthread_mutex_unlock(&lock);
    }
    pthread_join(thread, NULL);
    printf("sum %ld\n", sum);
    return 0;
}
