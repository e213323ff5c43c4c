// Check then act: whether seats are left and taking one are each done under the lock, but not both at once.
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int left = 10;
static int sold;

static int seats_left(void) {
    pthread_mutex_lock(&lock);
    int seats = left;
    pthread_mutex_unlock(&lock);
    return seats;
}

static void take_seat(void) {
    pthread_mutex_lock(&lock);
    assert(left > 0);
    left--;
    sold++;
    pthread_mutex_unlock(&lock);
}

static unsigned price(unsigned customer) {
    unsigned price = customer;
    for (int day = 0; day < 40; day++) price = price * 1103515245 + 12345;
    return price % 100;
}

static void *office(void *arg) {
    unsigned first = (unsigned)(long)arg;
    for (unsigned customer = first; customer < first + 8; customer++) {
        if (price(customer) > 95) continue;
        if (seats_left() > 0) take_seat();
    }
    return NULL;
}

int main(void) {
    pthread_t offices[2];
    for (long i = 0; i < 2; i++)
        if (pthread_create(&offices[i], NULL, office, (void *)(i * 100)) != 0) exit(2);
    for (int i = 0; i < 2; i++) pthread_join(offices[i], NULL);
    printf("sold %d\n", sold);
    return 0;
}
