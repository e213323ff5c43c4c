// Two owners of one block.
// kind: double-free
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct message { char *body; };
static void drop(struct message *message) { free(message->body); } // CAUSE
static struct message copy(const struct message *from) { return *from; }
int main(void) {
    struct message one = {strdup("hello there")};
    struct message two = copy(&one);
    puts(one.body);
    drop(&one);
    drop(&two);
    return 0;
}
