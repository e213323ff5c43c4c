// PI mutexes: uncontended, contended, timed, with a condition variable; error checking and
// recursive kinds on the way.
// variants: pie static
#include "guest.h"
static pthread_mutex_t pi;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long counter;
static int turn;
static void *add(void *unused) {
    (void)unused;
    for (int i = 0; i < 3000; i++) {
        CHECK(!pthread_mutex_lock(&pi));
        counter++;
        CHECK(!pthread_mutex_unlock(&pi));
    }
    return NULL;
}
static void *ping(void *arg) {
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&pi);
        while (turn != (int)(long)arg) pthread_cond_wait(&cond, &pi);
        turn = !turn;
        pthread_cond_signal(&cond);
        pthread_mutex_unlock(&pi);
    }
    return NULL;
}
static void *timed(void *result) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    *(int *)result = pthread_mutex_timedlock(&pi, &t);
    return NULL;
}
int main(void) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    CHECK(!pthread_mutex_init(&pi, &attr));
    pthread_t t[4];
    for (int i = 0; i < 4; i++) CHECK(!pthread_create(&t[i], NULL, add, NULL));
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    say("counter %ld", counter);
    for (long i = 0; i < 2; i++) CHECK(!pthread_create(&t[i], NULL, ping, (void *)i));
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    say("turn %d", turn);
    int result = 0;
    pthread_mutex_lock(&pi);
    CHECK(!pthread_create(&t[0], NULL, timed, &result));
    pthread_join(t[0], NULL);
    pthread_mutex_unlock(&pi);
    say("timed out %d", result == ETIMEDOUT);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_t checked;
    pthread_mutex_init(&checked, &attr);
    pthread_mutex_lock(&checked);
    say("deadlock %d", pthread_mutex_lock(&checked) == EDEADLK);
    pthread_mutex_unlock(&checked);
    say("not owner %d", pthread_mutex_unlock(&checked) == EPERM);
}
