// Threads in a second child, after a first that was spawned: they take turns at a lock.
// variants: pie static musl
#include "guest.h"
#include <spawn.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;
static void *work(void *arg) {
    for (long i = 0; i < 20; i++) {
        pthread_mutex_lock(&lock);
        total += i * (long)arg;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}
int main(void) {
    pid_t first;
    char *argv[] = {"true", NULL}, *env[] = {NULL};
    CHECK(posix_spawn(&first, "/bin/true", NULL, NULL, argv, env) == 0);
    int status;
    CHECK(waitpid(first, &status, 0) == first);
    say("spawned %d", status);
    pid_t second = fork();
    if (!second) {
        pthread_t t[3];
        for (long i = 0; i < 3; i++) CHECK(!pthread_create(&t[i], NULL, work, (void *)(i + 1)));
        for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
        say("total %ld", total);
        _exit(0);
    }
    CHECK(waitpid(second, &status, 0) == second);
    say("forked %d", status);
}
