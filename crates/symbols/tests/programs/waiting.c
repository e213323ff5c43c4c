// A thread that waits, and a call through a null pointer in it.
#include <pthread.h>
#include <stddef.h>

static void (*volatile nowhere)(int);

__attribute__((noinline)) static int work(int x)
{
    if (x > 3)
        nowhere(x);
    return x + 1;
}

static void *run(void *argument)
{
    int x = *(int *)argument;
    while (x < 10)
        x = work(x);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    int start = 2;
    pthread_create(&thread, NULL, run, &start);
    pthread_join(thread, NULL);
    return 0;
}
