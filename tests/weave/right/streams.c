// stdio from several threads: input, output, files; each stream's order is kept.
// variants: pie debug
// flags: -pthread
// stdin: 17 first line\nsecond line\nthird line\n
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

static FILE *log_file;
static int lines;

static void *work(void *argument) {
    int id = (int)(long)argument;
    for (int i = 0; i < 200; i++) {
        if (i % 20 == 0) printf("thread %d round %d %.2f %d %d %d %d\n", id, i, i / 3.0, 1, 2, 3, 4);
        fprintf(log_file, "%d %d\n", id, i);
        if (i % 50 == 0) {
            flockfile(stdout);
            fputs("one ", stdout);
            putchar('+');
            puts(" two");
            funlockfile(stdout);
        }
    }
    return NULL;
}

int main(void) {
    int number;
    char word[20];
    if (scanf("%d %19s", &number, word) != 2) return 1;
    int c = getchar();
    ungetc(c, stdin);
    printf("%d %s %d\n", number, word, c);
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) printf("%d: %s", ++lines, line);
    free(line);
    log_file = fopen("log", "w+");
    if (!log_file || fileno(log_file) < 3) return 2;
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    rewind(log_file);
    unsigned hash = 0;
    int a, b, count = 0;
    while (fscanf(log_file, "%d %d", &a, &b) == 2) hash = hash * 31 + a * 7 + b, count++;
    printf("%d entries, %u\n", count, hash);
    fclose(log_file);
    struct stat about;
    if (stat("log", &about) || about.st_size == 0) return 3;
    unlink("log");
    if (fopen("log", "r")) return 4;
    fprintf(stderr, "done, %ld bytes\n", (long)about.st_size);
    return 0;
}
