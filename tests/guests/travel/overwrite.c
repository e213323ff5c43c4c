// A pointer is overwritten by another thread's memcpy that is too long; much later it is used.
// variants: nopie
// flags: -O1
// status: signal SEGV
#include "guest.h"
struct session {
    char name[16];
    struct session *parent;
    int uses;
};
static struct session root = {"root", NULL, 0};
static struct session session = {"session", &root, 0};
static pthread_barrier_t barrier;
static volatile long worked;

__attribute__((noinline)) static void rename_session(struct session *of, const char *name,
                                                     size_t size) {
    memcpy(of->name, name, size);  // MARK: overwritten
}

static void *renamer(void *unused) {
    pthread_setname_np(pthread_self(), "renamer");
    for (int i = 0; i < 600; i++) {
        char name[32];
        int size = snprintf(name, sizeof name, "session %d", i);
        rename_session(&session, name, size + 1);
    }
    rename_session(&session, "a name of some length", 22);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void *worker(void *unused) {
    pthread_setname_np(pthread_self(), "worker");
    for (int i = 0; i < 300000; i++) worked += i % 7;
    pthread_barrier_wait(&barrier);
    return unused;
}

__attribute__((noinline)) static int use(struct session *of) {
    of->uses++;
    return of->parent->uses + 1;  // MARK: crash
}

int main(void) {
    pthread_t threads[2];
    CHECK(pthread_barrier_init(&barrier, NULL, 3) == 0);
    CHECK(pthread_create(&threads[0], NULL, renamer, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, worker, NULL) == 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    say("renamed");
    for (int i = 0; i < 300000; i++) worked += i % 3;
    return use(&session);
}
