// Lost update: two clerks book payments on one balance; each reads it, adds and writes it back.
// Load, addition and store are in straight-line code.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct account {
    volatile long balance;
    long fees;
    long history[64];
};

struct payments {
    struct account *account;
    long amounts[20];
    long booked;
};

static long fee(long amount) {
    long fee = amount;
    for (int year = 0; year < 30; year++) fee = (fee * 1009 + 7) % 9973;
    return fee % 10;
}

static void *clerk(void *arg) {
    struct payments *payments = arg;
    struct account *account = payments->account;
    for (int i = 0; i < 20; i++) {
        long amount = payments->amounts[i];
        long cost = fee(amount);
        // Between these the balance may be somebody else's.
        long before = account->balance;
        account->history[i & 63] = before;
        account->balance = before + amount - cost;
        payments->booked += amount - cost;
    }
    return NULL;
}

int main(void) {
    struct account account = {0};
    struct payments payments[2] = {{.account = &account}, {.account = &account}};
    for (int i = 0; i < 20; i++) {
        payments[0].amounts[i] = 100 + 7 * i;
        payments[1].amounts[i] = 1000 + 13 * i;
    }
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, clerk, &payments[i]) != 0) exit(2);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    long booked = payments[0].booked + payments[1].booked;
    printf("booked %ld, balance %ld\n", booked, account.balance);
    return account.balance == booked ? 0 : 1;
}
