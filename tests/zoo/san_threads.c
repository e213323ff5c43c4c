// AddressSanitizer sees that one thread uses what another has freed.
// held: out
// kind: sanitizer
// flags: -fsanitize=address
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static int *shared;
static pthread_barrier_t both;
static void *ends(void *unused) {
    free(shared); // CAUSE
    pthread_barrier_wait(&both);
    return unused;
}
int main(void) {
    pthread_t thread;
    shared = malloc(sizeof *shared);
    *shared = 5;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, ends, NULL);
    pthread_barrier_wait(&both);
    printf("%d\n", *shared);
    pthread_join(thread, NULL);
    return 0;
}
