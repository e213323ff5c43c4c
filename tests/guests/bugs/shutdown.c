// Use after free at shutdown: the log's buffer is freed when the program is done, while a detached writer may be
// about to put its last line there. It looks whether the log is open before, not while.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct log {
    atomic_int open;
    size_t used, size;
    char *text;
};

static struct log messages;
static atomic_int lines;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t written = PTHREAD_COND_INITIALIZER;

static void put(int sample, int units) {
    if (!messages.open) return;
    size_t at = messages.used;
    if (at + 64 > messages.size) at = 0;
    messages.used = at + snprintf(messages.text + at, 64, "sample %d: %d units\n", sample, units);
}

static void *monitor(void *arg) {
    (void)arg;
    for (int i = 0; i < 8; i++) {
        int units = i + 1;
        for (int second = 0; second < 100; second++) units = units * 37 % 1009;
        put(i, units);
        pthread_mutex_lock(&lock);
        lines++;
        pthread_cond_signal(&written);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void) {
    messages.size = 1 << 20;
    messages.text = malloc(messages.size);
    messages.open = 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, monitor, NULL) != 0) exit(2);
    // Three samples are enough for the report.
    pthread_mutex_lock(&lock);
    while (lines < 3) pthread_cond_wait(&written, &lock);
    pthread_mutex_unlock(&lock);
    unsigned sum = 0;
    for (size_t i = 0; i < 100; i++) sum += (unsigned char)messages.text[i];
    messages.open = 0;
    free(messages.text);
    printf("report %u\n", sum);
    pthread_join(thread, NULL);
    return 0;
}
