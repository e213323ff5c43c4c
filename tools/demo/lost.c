// Four tellers book into one account without a lock: now and then a booking is lost.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { TELLERS = 4, BOOKINGS = 1000000 };
static volatile long balance;

static void *teller(void *arg)
{
    for (int i = 0; i < BOOKINGS; i++)
        balance += 1;
    return arg;
}

int main(void)
{
    pthread_t threads[TELLERS];
    for (int i = 0; i < TELLERS; i++)
        pthread_create(&threads[i], NULL, teller, NULL);
    for (int i = 0; i < TELLERS; i++)
        pthread_join(threads[i], NULL);
    printf("balance %ld of %d\n", balance, TELLERS * BOOKINGS);
    return balance == TELLERS * BOOKINGS ? 0 : 1;
}
