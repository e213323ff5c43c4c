// Memory that one gives back and another gets is new memory.
// races: none
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *work(void *_) {
    for (int i = 0; i < 200; i++) {
        long *all[8];
        for (int k = 0; k < 8; k++) { all[k] = malloc(16 + 24 * k); all[k][0] = i; all[k][1] = k; }
        for (int k = 0; k < 8; k++) free(all[k]);
    }
    return NULL;
}
#define first work
#define second work

int main(void) {
    pthread_t one, two;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&two, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

