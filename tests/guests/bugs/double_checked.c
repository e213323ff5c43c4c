// Double-checked locking: the pointer that others look at without the lock is set before what it points to is ready.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct table {
    unsigned buckets;
    unsigned shift;
    unsigned *slots;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table *volatile shared;

static struct table *get_table(void) {
    if (shared == NULL) {
        pthread_mutex_lock(&lock);
        if (shared == NULL) {
            shared = calloc(1, sizeof *shared);
            shared->shift = 3;
            shared->slots = malloc(61 * sizeof *shared->slots);
            for (unsigned i = 0; i < 61; i++) shared->slots[i] = i % 2;
            shared->buckets = 61;
        }
        pthread_mutex_unlock(&lock);
    }
    return shared;
}

static unsigned hash(const char *text) {
    unsigned h = 2166136261u;
    while (*text) h = (h ^ (unsigned char)*text++) * 16777619u;
    return h;
}

static void *client(void *arg) {
    char key[32];
    unsigned found = 0;
    for (int i = 0; i < 6; i++) {
        snprintf(key, sizeof key, "%s-%d", (const char *)arg, i);
        unsigned h = hash(key);
        struct table *table = get_table();
        found += table->slots[(h >> table->shift) % table->buckets]++;
    }
    return (void *)(unsigned long)found;
}

int main(void) {
    char *names[3] = {"alpha", "beta", "gamma"};
    pthread_t clients[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&clients[i], NULL, client, names[i]) != 0) exit(2);
    for (int i = 0; i < 3; i++) pthread_join(clients[i], NULL);
    unsigned entries = 0;
    for (int i = 0; i < 61; i++) entries += shared->slots[i];
    printf("%u entries\n", entries);
    return 0;
}
