// Double-checked: the pointer is there before what it points to is done.
#include "bug.h"
struct table { int size; int *rows; };
static _Atomic(struct table *) table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table *get(void) {
    if (table == NULL) {
        pthread_mutex_lock(&lock);
        if (table == NULL) {
            table = calloc(1, sizeof *table);
            table->size = 16;
            table->rows = calloc(16, sizeof(int));
        }
        pthread_mutex_unlock(&lock);
    }
    return table;
}
static void *user(void *arg) {
    work(200);
    get()->rows[3]++;
    return arg;
}
int main(void) {
    pthread_t threads[] = {start(user, NULL), start(user, NULL), start(user, NULL)};
    for (int i = 0; i < 3; i++) join(threads[i]);
    return 0;
}
