// A pointer that came in by a call long ago.
// kind: wild-pointer
// stdin: not a pointer, only text
#include <stdio.h>
#include <unistd.h>
static volatile unsigned long mixed = 1;
static struct { long kind; char *text; } message;
static void receive(void) {
    read(0, &message, sizeof message); // CAUSE
}
int main(void) {
    receive();
    for (unsigned long n = 0; n < 30000000; n++) mixed = (mixed ^ n) * 31;
    puts(message.text);
    return 0;
}
