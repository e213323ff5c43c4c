// Robust mutexes of a process that is killed: the next owner learns of it, a waiter is woken.
// variants: pie static
// recorded: no
#include "guest.h"
static pthread_mutex_t *make(void) {
    pthread_mutex_t *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    CHECK(!pthread_mutex_init(m, &attr));
    return m;
}
int main(void) {
    int r;
    pthread_mutex_t *m = make();
    pid_t pid = fork();
    if (!pid) {
        pthread_mutex_lock(m);
        raise(SIGKILL);
    }
    waitpid(pid, NULL, 0);
    r = pthread_mutex_lock(m);
    say("process died: %d", r == EOWNERDEAD);
    pthread_mutex_unlock(m); // not made consistent
    say("unusable: %d", pthread_mutex_lock(m) == ENOTRECOVERABLE);
    // A waiter blocked at the time of death is woken.
    m = make();
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid = fork();
    if (!pid) {
        pthread_mutex_lock(m);
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
    }
    char c;
    CHECK(read(ready[0], &c, 1) == 1);
    say("busy: %d", pthread_mutex_trylock(m) == EBUSY);
    pid_t killer = fork();
    if (!killer) {
        kill(pid, SIGKILL);
        _exit(0);
    }
    r = pthread_mutex_lock(m);
    say("woken: %d", r == EOWNERDEAD);
    while (wait(NULL) > 0) {}
}
