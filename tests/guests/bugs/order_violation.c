// Order violation: a worker uses its own handle, which its maker stores only after making it.
// The worker's first lines normally come long after the maker's next one.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct worker {
    pthread_t thread;
    char name[32];
    unsigned checksum;
};

struct pool {
    struct worker *volatile workers[4];
    int count;
};

static struct pool pool;

static unsigned checksum(const char *text) {
    unsigned sum = 0;
    while (*text) sum = sum * 31 + (unsigned char)*text++;
    return sum;
}

static void *work(void *number) {
    char text[4096];
    int size = 0;
    for (unsigned i = 0; size < 4095; i += 7) text[size++] = 'a' + i % 26;
    text[size] = 0;
    unsigned sum = checksum(text);
    for (int round = 0; round < 6; round++) sum += checksum(text + sum % 64);
    // By now the maker has put it there, surely.
    struct worker *self = pool.workers[(long)number];
    self->checksum = sum ^ checksum(self->name);
    return NULL;
}

static void start(int number) {
    struct worker *worker = calloc(1, sizeof *worker);
    snprintf(worker->name, sizeof worker->name, "worker %d", number);
    if (pthread_create(&worker->thread, NULL, work, (void *)(long)number) != 0) exit(2);
    pool.workers[number] = worker;
    pool.count++;
}

int main(void) {
    for (int i = 0; i < 4; i++) start(i);
    unsigned all = 0;
    for (int i = 0; i < pool.count; i++) {
        pthread_join(pool.workers[i]->thread, NULL);
        all += pool.workers[i]->checksum;
        free(pool.workers[i]);
    }
    printf("%08x\n", all);
    return 0;
}
