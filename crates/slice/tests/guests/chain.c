// A number that is read, parsed, passed to another thread, multiplied, copied as a part of a structure.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct job {
    int id;
    long weight;
    char text[24];
};

struct job *queue[16];
long total;
long constant;
char line[64];
long by_result, by_memory, by_clock;

static void *worker(void *arg)
{
    long n = *(long *) arg;
    for (int i = 0; i < 16; i++)
        queue[i]->weight = n * 3; // tripled
    return NULL;
}

__attribute__((noinline)) static long add(long a, long b)
{
    return a + b; // summed
}

int main(void)
{
    int ends[2];
    if (pipe(ends) || write(ends[1], "4242\n", 5) != 5)
        return 1;
    if (read(ends[0], line, sizeof line) != 5)
        return 1;
    long n = add(line[0], line[1]);
    for (int i = 0; i < 16; i++) {
        queue[i] = malloc(sizeof *queue[i]);
        queue[i]->id = i;
    }
    pthread_t thread;
    pthread_create(&thread, NULL, worker, &n);
    pthread_join(thread, NULL);
    struct job copy;
    memcpy(&copy, queue[7], sizeof copy);
    total = copy.weight; // stored
    constant = 77; // constant
    struct timeval day = {1, 2};
    struct timespec clock = {3, 4};
    by_result = time(NULL);
    if (gettimeofday(&day, NULL) || clock_gettime(CLOCK_REALTIME, &clock))
        return 1;
    by_memory = day.tv_usec;
    by_clock = clock.tv_sec;
    printf("%ld %ld\n", total, constant);
    return 0;
}
