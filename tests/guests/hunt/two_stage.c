// Two stages with two locks: what is written in the second stage follows from the first, and a reader takes both locks, but not
// at once. Twelve writers, one reader.
#include "bug.h"
static pthread_mutex_t first_lock = PTHREAD_MUTEX_INITIALIZER, second_lock = PTHREAD_MUTEX_INITIALIZER;
static int first, second;
static void *writer(void *arg) {
    work(20);
    pthread_mutex_lock(&first_lock);
    first = 1;
    pthread_mutex_unlock(&first_lock);
    pthread_mutex_lock(&second_lock);
    second = first + 1;
    pthread_mutex_unlock(&second_lock);
    return arg;
}
static void *reader(void *arg) {
    work(20);
    pthread_mutex_lock(&first_lock);
    int one = first;
    pthread_mutex_unlock(&first_lock);
    if (one == 0) return arg;
    pthread_mutex_lock(&second_lock);
    int two = second;
    pthread_mutex_unlock(&second_lock);
    assert(two == one + 1);
    return arg;
}
int main(void) {
    pthread_t threads[13];
    for (int i = 0; i < 12; i++) threads[i] = start(writer, NULL);
    threads[12] = start(reader, NULL);
    for (int i = 0; i < 13; i++) join(threads[i]);
    return 0;
}
