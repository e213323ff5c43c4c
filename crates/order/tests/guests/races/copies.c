// Both copy, and the library does it for them.
// races: buffer
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>
char buffer[256], from[256], to[256];
volatile size_t length = 200;
static void *first(void *_) { memcpy(buffer, from, length); return NULL; }
static void *second(void *_) { memcpy(to, buffer, length); return NULL; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

