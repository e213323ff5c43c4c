// Each account has its lock, and a transfer takes one after the other: in between money is nowhere.
#include "bug.h"
static struct { pthread_mutex_t lock; int money; } accounts[3] = {
    {PTHREAD_MUTEX_INITIALIZER, 100}, {PTHREAD_MUTEX_INITIALIZER, 100}, {PTHREAD_MUTEX_INITIALIZER, 100}};
static void add(int n, int amount) {
    pthread_mutex_lock(&accounts[n].lock);
    accounts[n].money += amount;
    pthread_mutex_unlock(&accounts[n].lock);
}
static void *bank(void *arg) {
    for (int i = 0; i < 5; i++) {
        work(100);
        add(i % 3, -10);
        add((i + 1) % 3, 10);
    }
    return arg;
}
static void *auditor(void *arg) {
    work(250);
    int sum = 0;
    for (int i = 0; i < 3; i++) pthread_mutex_lock(&accounts[i].lock);
    for (int i = 0; i < 3; i++) sum += accounts[i].money;
    for (int i = 0; i < 3; i++) pthread_mutex_unlock(&accounts[i].lock);
    assert(sum == 300);
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(bank, NULL), start(auditor, NULL)};
    join(threads[0]);
    join(threads[1]);
    return 0;
}
