// Lock order: two transfers in opposite directions lock the two accounts in opposite orders, and wait for each other.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct account {
    pthread_mutex_t lock;
    long balance;
};

static struct account accounts[3] = {
    {PTHREAD_MUTEX_INITIALIZER, 1000},
    {PTHREAD_MUTEX_INITIALIZER, 1000},
    {PTHREAD_MUTEX_INITIALIZER, 1000},
};

static long fee(long amount) {
    long fee = amount;
    for (int year = 0; year < 20; year++) fee = (fee * 1009 + 7) % 9973;
    return fee % 3;
}

static void transfer(struct account *from, struct account *to, long amount) {
    pthread_mutex_lock(&from->lock);
    if (from->balance >= amount) {
        from->balance -= amount + fee(amount);
        pthread_mutex_lock(&to->lock);
        to->balance += amount;
        pthread_mutex_unlock(&to->lock);
    }
    pthread_mutex_unlock(&from->lock);
}

static long quote(long seed) {
    for (int i = 0; i < 250; i++) seed = (seed * 6364136223846793005l + 1442695040888963407l) & 0xffff;
    return seed % 50 + 1;
}

static void *teller(void *arg) {
    long number = (long)arg;
    for (long i = 0; i < 6; i++) {
        long amount = quote(number * 100 + i);
        // Every other one of each meets another the wrong way round.
        if (number == 0) transfer(&accounts[0], &accounts[i % 2 ? 1 : 2], amount);
        else transfer(&accounts[1], &accounts[i % 2 ? 0 : 2], amount);
    }
    return NULL;
}

int main(void) {
    pthread_t tellers[2];
    for (long i = 0; i < 2; i++)
        if (pthread_create(&tellers[i], NULL, teller, (void *)i) != 0) exit(2);
    for (int i = 0; i < 2; i++) pthread_join(tellers[i], NULL);
    printf("total %ld\n", accounts[0].balance + accounts[1].balance + accounts[2].balance);
    return 0;
}
