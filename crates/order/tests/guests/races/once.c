// Made once, used by both.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int *made;
pthread_once_t once = PTHREAD_ONCE_INIT;
static void make(void) { made = malloc(sizeof *made); *made = 7; }
static void *first(void *_) { pthread_once(&once, make); return (void *)(long)*made; }
static void *second(void *_) { pthread_once(&once, make); return (void *)(long)*made; }

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

