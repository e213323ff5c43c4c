/* Thread-local variables of the program and of a library, seen from a second thread. */
#include <pthread.h>
#include <stdio.h>

int touch(int to);
__thread int own = 1;
__thread char name[8] = "main";
static __thread struct {
    long a, b;
} aligned __attribute__((aligned(64))) = {3, 4};
int result;

static void *second(void *unused)
{
    own = 22;
    name[0] = 's';
    aligned.b = 40;
    result = touch(50);
    printf("%d\n", result); /* STOP */
    return unused;
}

int main(void)
{
    pthread_t thread;
    touch(9);
    pthread_create(&thread, NULL, second, NULL);
    pthread_join(thread, NULL);
    return 0;
}
