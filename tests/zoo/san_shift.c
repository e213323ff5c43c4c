// UndefinedBehaviorSanitizer sees a shift by more than there are bits.
// kind: sanitizer
// flags: -fsanitize=undefined -fno-sanitize-recover=all
#include <stdio.h>
struct field { unsigned width, at; };
static unsigned place(struct field *fields, int count) {
    unsigned at = 0;
    for (int n = 0; n < count; n++) {
        fields[n].at = at;
        at += fields[n].width; // CAUSE
    }
    return at;
}
int main(void) {
    struct field fields[3] = {{8, 0}, {24, 0}, {4, 0}};
    place(fields, 3);
    unsigned mask = 0;
    for (int n = 0; n < 3; n++) mask |= 1u << fields[n].at;
    printf("%x\n", mask);
    return 0;
}
