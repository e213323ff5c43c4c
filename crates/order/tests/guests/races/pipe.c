// Handed over by a pipe.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <unistd.h>
int data, ends[2];
static void begin(void) __attribute__((constructor));
static void begin(void) { if (pipe(ends)) abort(); }
static void *first(void *_) { data = 1; if (write(ends[1], "x", 1) != 1) abort(); return NULL; }
static void *second(void *_) { char c; if (read(ends[0], &c, 1) != 1) abort(); return (void *)(long)data; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

