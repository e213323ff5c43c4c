// Used after a join.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int data;
static void *first(void *_) { data = 1; return NULL; }
int main(void) {
    for (int i = 0; i < 5; i++) { pthread_t one; data = 0; pthread_create(&one, NULL, first, NULL); pthread_join(one, NULL); data++; }
    return data != 2;
}
