// A pointer that is null, and is set to null once more by another thread, long ago.
// kind: null-pointer
#include <pthread.h>
#include <stdio.h>
static volatile unsigned long mixed = 1;
static int *volatile best;
static void *forget(void *unused) {
    best = NULL; // CAUSE
    return unused;
}
int main(void) {
    pthread_t thread;
    best = NULL;
    pthread_create(&thread, NULL, forget, NULL);
    pthread_join(thread, NULL);
    for (unsigned long n = 0; n < 30000000; n++) mixed = (mixed ^ n) * 31;
    printf("%d\n", *best);
    return 0;
}
