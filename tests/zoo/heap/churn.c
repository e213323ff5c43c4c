// Allocates and frees in every way that the C library has, the same in each run.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    unsigned state = 12345;
    void *blocks[64] = {0};
    for (int round = 0; round < 4000; round++) {
        state = state * 1103515245 + 12345;
        unsigned at = (state >> 16) % 64, size = (state >> 8) % 3000 + 1;
        switch (state % 5) {
            case 0: free(blocks[at]); blocks[at] = malloc(size); break;
            case 1: free(blocks[at]); blocks[at] = calloc(size % 13 + 1, size % 29 + 1); break;
            case 2: blocks[at] = realloc(blocks[at], size); break;
            case 3: free(blocks[at]); blocks[at] = strndup("some words to be copied", size % 20); break;
            default:
                free(blocks[at]);
                if (round % 50 || posix_memalign(&blocks[at], 64, size)) blocks[at] = NULL;
        }
    }
    for (int at = 0; at < 32; at++) free(blocks[at]);
    puts("done");
    return 0;
}
