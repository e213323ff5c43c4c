// Used before the join.
// races: data
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int data;
static void *first(void *_) { data = 1; return NULL; }
int main(void) { pthread_t one; pthread_create(&one, NULL, first, NULL); data++; pthread_join(one, NULL); return 0; }
