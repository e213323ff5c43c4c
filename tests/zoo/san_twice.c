// AddressSanitizer sees that a block is freed twice.
// kind: sanitizer
// flags: -fsanitize=address
#include <stdlib.h>
struct request { char *body; };
static void reject(struct request *request) {
    free(request->body); // CAUSE
}
static void finish(struct request *request) {
    free(request->body);
    free(request);
}
int main(void) {
    struct request *request = malloc(sizeof *request);
    request->body = malloc(100);
    reject(request);
    finish(request);
    return 0;
}
