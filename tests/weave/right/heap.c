// Memory that one thread allocates and another frees: addresses are the same in a replay.
// variants: pie
// flags: -pthread
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 64
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *slots[SLOTS];
static uint64_t hash;

static void *work(void *argument) {
    unsigned seed = (unsigned)(long)argument + 1;
    for (int i = 0; i < 5000; i++) {
        seed = seed * 1103515245 + 12345;
        size_t size = (seed >> 8) % 100 == 0 ? 200000 + seed % 100000 : (seed >> 16) % 2000 + 1;
        char *memory = (seed & 4) ? calloc(1, size) : malloc(size);
        memory[0] = memory[size - 1] = 1;
        if (seed & 8) memory = realloc(memory, size + 3000);
        pthread_mutex_lock(&mutex);
        void *old = slots[seed % SLOTS];
        slots[seed % SLOTS] = memory;
        hash = hash * 31 + (uintptr_t)memory;
        pthread_mutex_unlock(&mutex);
        free(old);
    }
    return NULL;
}

int main(void) {
    for (int round = 0; round < 3; round++) {
        pthread_t threads[4];
        for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)(i + round));
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    }
    void *aligned;
    if (posix_memalign(&aligned, 4096, 100) || (uintptr_t)aligned % 4096) return 1;
    printf("%llx %p\n", (unsigned long long)hash, aligned);
    return 0;
}
