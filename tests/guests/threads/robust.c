// Robust mutexes: the next owner learns of the end of a thread and of a process, and
// repairs; an unrepaired one becomes unusable.
// variants: pie static musl
#include "guest.h"
static pthread_mutex_t *make(int shared) {
    pthread_mutex_t *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    if (shared) pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    CHECK(!pthread_mutex_init(m, &attr));
    return m;
}
static void *take(void *m) {
    CHECK(!pthread_mutex_lock(m));
    return NULL;
}
int main(void) {
    pthread_mutex_t *m = make(0);
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, take, m));
    pthread_join(t, NULL);
    int r = pthread_mutex_lock(m);
    say("thread died: %d", r == EOWNERDEAD);
    CHECK(!pthread_mutex_consistent(m));
    pthread_mutex_unlock(m);
    say("repaired: %d", pthread_mutex_lock(m));
    pthread_mutex_unlock(m);
    m = make(1);
    pid_t pid = fork();
    if (!pid) {
        pthread_mutex_lock(m);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    r = pthread_mutex_lock(m);
    say("process ended: %d", r == EOWNERDEAD);
    pthread_mutex_unlock(m); // not made consistent
    say("unusable: %d", pthread_mutex_lock(m) == ENOTRECOVERABLE);
    // A waiter blocked at that time is woken.
    m = make(1);
    int ready[2], end[2];
    CHECK(pipe(ready) == 0 && pipe(end) == 0);
    pid = fork();
    if (!pid) {
        pthread_mutex_lock(m);
        CHECK(write(ready[1], "x", 1) == 1);
        char c;
        CHECK(read(end[0], &c, 1) == 1);
        _exit(0);
    }
    char c;
    CHECK(read(ready[0], &c, 1) == 1);
    say("busy: %d", pthread_mutex_trylock(m) == EBUSY);
    pid_t other = fork();
    if (!other) {
        CHECK(write(end[1], "x", 1) == 1);
        _exit(0);
    }
    r = pthread_mutex_lock(m);
    say("woken: %d", r == EOWNERDEAD);
    while (wait(NULL) > 0) {}
}
