// Five hundred threads alive at once, then two thousand one after another.
// variants: pie static musl
#include "guest.h"
enum { COUNT = 500 };
static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;
static void *work(void *arg) {
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&lock);
    total += (long)arg;
    pthread_mutex_unlock(&lock);
    return (void *)((long)arg * 2);
}
static void *quick(void *arg) { return arg; }
int main(void) {
    static pthread_t t[COUNT];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    pthread_barrier_init(&barrier, NULL, COUNT + 1);
    for (long i = 0; i < COUNT; i++) CHECK(!pthread_create(&t[i], &attr, work, (void *)i));
    pthread_barrier_wait(&barrier);
    long results = 0;
    for (int i = 0; i < COUNT; i++) {
        void *r;
        CHECK(!pthread_join(t[i], &r));
        results += (long)r;
    }
    say("%ld %ld", total, results);
    long sum = 0;
    for (long i = 0; i < 2000; i++) {
        void *r;
        CHECK(!pthread_create(&t[0], &attr, quick, (void *)i));
        CHECK(!pthread_join(t[0], &r));
        sum += (long)r;
    }
    say("%ld", sum);
}
