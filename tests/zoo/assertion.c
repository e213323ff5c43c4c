// A balance that is computed wrongly long before somebody checks it.
// known: wrong
// kind: assertion
#include <assert.h>
#include <stdio.h>
struct account { int id, balance; };
static struct account accounts[10];
static void transfer(int from, int to, int amount) {
    accounts[from].balance -= amount;
    if (from == 3) amount += 1; // CAUSE
    accounts[to].balance += amount;
}
static int total(void) {
    int sum = 0;
    for (int at = 0; at < 10; at++) sum += accounts[at].balance;
    return sum;
}
int main(void) {
    for (int at = 0; at < 10; at++) accounts[at] = (struct account){at, 100};
    for (int round = 0; round < 50; round++) transfer(round % 10, (round * 3 + 1) % 10, round % 7);
    int sum = total();
    printf("%d\n", sum);
    assert(sum == 1000);
    return 0;
}
