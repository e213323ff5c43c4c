// A buffer grows, and an old pointer into it is still written through: it ruins what lives there now.
// kind: use-after-free
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct job { void (*run)(struct job *); long id; };
static void hello(struct job *job) { printf("job %ld\n", job->id); }
int main(void) {
    long *numbers = malloc(2 * sizeof *numbers);
    long *first = &numbers[0];
    char *between = malloc(8);
    numbers = realloc(numbers, 4000 * sizeof *numbers); // CAUSE
    struct job *job = malloc(sizeof *job);
    job->run = hello;
    job->id = 7;
    *first = 0x1234567;
    job->run(job);
    free(between);
    free(numbers);
    return 0;
}
