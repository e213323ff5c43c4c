// Plain work of many kinds, in rounds: sorting, hashing, text, matrices, calls of the kernel.
// variants: pie
// flags: -O1
// args: 5
#include "guest.h"
enum { COUNT = 4096, SIDE = 48, SLOTS = 1 << 12 };
static int numbers[COUNT];
static double left[SIDE][SIDE], right[SIDE][SIDE], product[SIDE][SIDE];
static struct slot {
    uint64_t key;
    int count;
} slots[SLOTS];
static uint64_t seed = 42;

__attribute__((noinline)) static int compare(const void *a, const void *b) {
    int one = *(const int *)a, other = *(const int *)b;
    return (one > other) - (one < other);
}

__attribute__((noinline)) static long sort(void) {
    for (int i = 0; i < COUNT; i++) numbers[i] = (int)(next_random(&seed) % 1000000);
    qsort(numbers, COUNT, sizeof *numbers, compare);
    long sum = 0;
    for (int i = 1; i < COUNT; i++) sum += (long)(numbers[i] - numbers[i - 1]) * i;
    return sum;
}

__attribute__((noinline)) static int count(uint64_t key) {
    unsigned at = (unsigned)(key * 0x9e3779b97f4a7c15 >> 52);
    while (slots[at].count && slots[at].key != key) at = (at + 1) % SLOTS;
    slots[at].key = key;
    return ++slots[at].count;
}

__attribute__((noinline)) static long hash(void) {
    long most = 0;
    memset(slots, 0, sizeof slots);
    for (int i = 0; i < 20000; i++) {
        int now = count(next_random(&seed) % 3000);
        if (now > most) most = now;
    }
    return most;
}

__attribute__((noinline)) static double multiply(void) {
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            left[i][j] = (double)(next_random(&seed) % 100);
            right[i][j] = (double)(i * j % 17);
        }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            double sum = 0;
            for (int k = 0; k < SIDE; k++) sum += left[i][k] * right[k][j];
            product[i][j] = sum;
        }
    return product[SIDE / 2][SIDE / 3];
}

__attribute__((noinline)) static long text(void) {
    char line[128];
    long sum = 0;
    for (int i = 0; i < 300; i++) {
        snprintf(line, sizeof line, "%d %lx %s", i, (long)(next_random(&seed) % 99999), "some words");
        for (char *c = line; *c; c++) sum = sum * 31 + *c;
        sum += (long)strlen(line);
    }
    return sum;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    long total = 0;
    for (int round = 0; round < rounds; round++) {
        total += sort() + hash() + (long)multiply() + text();
        CHECK(getppid() > 0);
    }
    say("%lx", total);
    return 0;
}
