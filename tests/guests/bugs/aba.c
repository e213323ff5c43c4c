// ABA: a lock-free stack of free buffers. Between reading the head's successor and swinging the head, the head was
// popped, its successor too, and the head pushed again: the swing succeeds, and a buffer in use is free as well.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct buffer {
    struct buffer *next;
    atomic_int users;
    unsigned data[8];
};

static struct buffer buffers[4];
static _Atomic(struct buffer *) head;

static struct buffer *take(void) {
    struct buffer *first = atomic_load(&head);
    while (first && !atomic_compare_exchange_strong(&head, &first, first->next)) {}
    if (first && atomic_fetch_add(&first->users, 1) != 0) {
        fprintf(stderr, "buffer %ld has two users\n", (long)(first - buffers));
        abort();
    }
    return first;
}

static void give(struct buffer *buffer) {
    atomic_fetch_sub(&buffer->users, 1);
    struct buffer *first = atomic_load(&head);
    do buffer->next = first;
    while (!atomic_compare_exchange_strong(&head, &first, buffer));
}

static void fill(struct buffer *buffer, unsigned seed, int words) {
    for (int i = 0; i < words; i++) {
        seed = seed * 1664525 + 1013904223;
        buffer->data[i % 8] ^= seed;
    }
}

static void *client(void *arg) {
    unsigned seed = (unsigned)(long)arg;
    for (int round = 0; round < 40; round++) {
        // Every other job needs three.
        struct buffer *one = take(), *two = take(), *three = round % 2 ? NULL : take();
        if (one) fill(one, seed++, 8);
        if (one) give(one);
        if (two) fill(two, seed++, 24);
        if (two) give(two);
        if (three) give(three);
    }
    return NULL;
}

int main(void) {
    for (int i = 0; i < 4; i++) give((atomic_fetch_add(&buffers[i].users, 1), &buffers[i]));
    pthread_t clients[2];
    for (long i = 0; i < 2; i++)
        if (pthread_create(&clients[i], NULL, client, (void *)(i + 1)) != 0) exit(2);
    for (int i = 0; i < 2; i++) pthread_join(clients[i], NULL);
    int free_buffers = 0;
    for (struct buffer *buffer = head; buffer && free_buffers < 9; buffer = buffer->next) free_buffers++;
    printf("%d free\n", free_buffers);
    return free_buffers == 4 ? 0 : 1;
}
