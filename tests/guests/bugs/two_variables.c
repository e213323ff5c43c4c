// Atomicity of two variables: a view's start and length are always right together, and set one after the other.
// Both stores, and both loads of the reader, are in straight-line code.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct view {
    volatile unsigned start, length;
};

static const unsigned text_size = 1000;
static struct view view = {0, 1000};

static unsigned layout(unsigned page) {
    unsigned width = page;
    for (int i = 0; i < 120; i++) width = (width * 75 + 74) % 65537;
    return width % 400;
}

static void *scroller(void *arg) {
    (void)arg;
    for (unsigned page = 0; page < 24; page++) {
        unsigned start = layout(page);
        if (page % 2) start += 500;
        view.start = start;
        view.length = text_size - start;
    }
    return NULL;
}

static void *painter(void *arg) {
    long painted = 0;
    for (int frame = 0; frame < 24; frame++) {
        unsigned start = view.start;
        unsigned length = view.length;
        if (start + length > text_size) {
            fprintf(stderr, "painting %u..%u of %u\n", start, start + length, text_size);
            abort();
        }
        painted += layout(start + length);
    }
    *(long *)arg = painted;
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    long painted = 0;
    if (pthread_create(&threads[0], NULL, scroller, NULL) != 0) exit(2);
    if (pthread_create(&threads[1], NULL, painter, &painted) != 0) exit(2);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%s\n", painted >= 0 ? "painted" : "nothing");
    return 0;
}
