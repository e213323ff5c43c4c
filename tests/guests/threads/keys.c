// Thread-specific data: destructors run at exit, again when they set new values, and
// pthread_once, detached threads, attributes.
// variants: pie static musl
#include "guest.h"
#include <semaphore.h>
static pthread_key_t key, second;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t done;
static int inits;
static void init(void) { inits++; }
static void destroy(void *v) {
    say("destroy %ld", (long)v);
    if ((long)v > 1) pthread_setspecific(key, (void *)((long)v - 1));
}
static void destroy2(void *v) { say("second %s", (char *)v); }
static void *work(void *arg) {
    pthread_once(&once, init);
    pthread_setspecific(key, arg);
    return NULL;
}
static void *detached(void *arg) {
    (void)arg;
    pthread_once(&once, init);
    pthread_setspecific(second, "value");
    sem_post(&done);
    pthread_exit(NULL);
}
static void *self_detach(void *arg) {
    (void)arg;
    pthread_detach(pthread_self());
    sem_post(&done);
    return NULL;
}
int main(void) {
    pthread_key_create(&key, destroy);
    sem_init(&done, 0, 0);
    pthread_t t;
    for (long i = 1; i <= 3; i++) {
        CHECK(!pthread_create(&t, NULL, work, (void *)i));
        pthread_join(t, NULL);
    }
    pthread_key_create(&second, NULL);
    (void)destroy2;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    CHECK(!pthread_create(&t, &attr, detached, NULL));
    CHECK(!pthread_create(&t, NULL, self_detach, NULL));
    for (int i = 0; i < 2; i++) while (sem_wait(&done)) {}
    say("once %d", inits);
}
