// A size is wrong because of a conversion somewhere else.
// kind: assertion
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
struct header { unsigned char length; char kind; };
static void set_length(struct header *header, int length) {
    header->length = (unsigned char)length; // CAUSE
}
static int work(int rounds) {
    int sum = 0;
    for (int at = 0; at < rounds; at++) sum += at % 13;
    return sum;
}
int main(void) {
    struct header *header = malloc(sizeof *header);
    set_length(header, 300);
    printf("%d\n", work(10000));
    assert(header->length >= 100);
    free(header);
    return 0;
}
