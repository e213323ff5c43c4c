// A box on the heap has a key and a sum that belong together; each is written under the lock, but not both at once.
// held: out
// variable: sum
// pattern: pair
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct box {
    int key;
    char pad[60];
    int sum;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct box *box;

static int digest(int key) {
    for (int i = 0; i < 40; i++) key = (key * 31 + 7) % 9973;
    return key;
}

static void *writer(void *arg) {
    (void)arg;
    for (int key = 1; key < 8; key++) {
        pthread_mutex_lock(&lock);
        box->key = key; // REMOTE
        pthread_mutex_unlock(&lock);
        int sum = digest(key);
        pthread_mutex_lock(&lock);
        box->sum = sum; // REMOTE
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void *reader(void *arg) {
    for (int i = 0; i < 4; i++) {
        volatile int idle = digest(i) + digest(i + 1) + digest(i + 2);
        (void)idle;
        pthread_mutex_lock(&lock);
        int key = box->key; // LOCAL
        int sum = box->sum; // LOCAL
        pthread_mutex_unlock(&lock);
        if (digest(key) != sum) return (void *)1;
    }
    return arg;
}

int main(void) {
    box = calloc(1, sizeof *box);
    box->sum = digest(0);
    pthread_t threads[2];
    void *wrong = NULL;
    if (pthread_create(&threads[0], NULL, writer, NULL) != 0) exit(2);
    if (pthread_create(&threads[1], NULL, reader, NULL) != 0) exit(2);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], &wrong);
    printf("%s\n", wrong ? "torn" : "whole");
    return wrong != NULL;
}
