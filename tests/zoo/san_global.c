// AddressSanitizer sees a write behind a variable, by a library's function.
// kind: sanitizer
// flags: -fsanitize=address
#include <stdio.h>
#include <string.h>
static char title[8];
static char author[8];
static void set(char *field, const char *text) {
    memcpy(field, text, strlen(text) + 1); // CAUSE
}
int main(void) {
    set(title, "Emma");
    set(author, "Jane Austen");
    printf("%s by %s\n", title, author);
    return 0;
}
