// Order violation: a server thread sets up its queue when it starts; whoever made it has another thread prepare the
// first request, which takes much longer, and doesn't wait for the queue to be there.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    const char *request;
};

static struct queue *volatile queue;

static void *serve(void *arg) {
    struct queue *own = calloc(1, sizeof *own);
    pthread_mutex_init(&own->lock, NULL);
    pthread_cond_init(&own->filled, NULL);
    queue = own;
    pthread_mutex_lock(&own->lock);
    while (own->request == NULL) pthread_cond_wait(&own->filled, &own->lock);
    *(size_t *)arg = strlen(own->request);
    pthread_mutex_unlock(&own->lock);
    return NULL;
}

static unsigned checksum(const char *text) {
    unsigned sum = 0;
    while (*text) sum = sum * 31 + (unsigned char)*text++;
    return sum;
}

static char request[4096];

static void *prepare(void *arg) {
    for (size_t at = 0; at < sizeof request - 1; at++) request[at] = 'a' + at * 7 % 26;
    for (int round = 0; round < 120; round++) request[round] = 'a' + checksum(request) % 26;
    return arg;
}

int main(void) {
    pthread_t server, loader;
    size_t length = 0;
    if (pthread_create(&server, NULL, serve, &length) != 0) exit(2);
    if (pthread_create(&loader, NULL, prepare, NULL) != 0) exit(2);
    pthread_join(loader, NULL);
    pthread_mutex_lock(&queue->lock);
    queue->request = request;
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(server, NULL);
    printf("%zu bytes, %08x\n", length, checksum(request));
    return 0;
}
