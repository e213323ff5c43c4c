// A global that one thread frees and another goes on using.
// variants: pie
// flags: -O1
// status: signal SEGV
#include "guest.h"
struct table {
    long *entries;
    long size, used;
    long sum;
};
static struct table *table;
static pthread_barrier_t barrier;
static volatile long worked;

__attribute__((noinline)) static void close_table(void) {
    free(table->entries);
    free(table);  // MARK: freed
}

static void *closer(void *unused) {
    pthread_setname_np(pthread_self(), "closer");
    for (int i = 0; i < 200000; i++) worked += i % 5;
    close_table();
    // Somebody gets the same memory for something else.
    char *text = malloc(sizeof *table);
    memset(text, 'x', sizeof *table);
    say("%.3s", text);
    pthread_barrier_wait(&barrier);
    return unused;
}

__attribute__((noinline)) static long look_up(long key) {
    return table->entries[key % table->size];  // MARK: crash
}

static void *user(void *unused) {
    pthread_setname_np(pthread_self(), "user");
    long sum = 0;
    for (int i = 0; i < 1000; i++) sum += look_up(i);
    table->sum = sum;
    say("sum %ld", sum);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 200000; i++) worked += i % 3;
    worked += look_up(1);
    return unused;
}

int main(void) {
    pthread_t threads[2];
    struct table *made = malloc(sizeof *made);
    *made = (struct table){calloc(64, sizeof(long)), 64, 64, 0};
    for (int i = 0; i < 64; i++) made->entries[i] = i;
    table = made;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&threads[0], NULL, user, NULL) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_create(&threads[1], NULL, closer, NULL) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
