// Two threads hand a turn to and fro by spinning on a variable, while others spin for the end.
// variants: static
// args: 30
#include "guest.h"
static volatile int turn;
static volatile int over;
static int rounds;
static void *player(void *arg) {
    for (int i = 0; i < rounds; i++) {
        while (turn != (int)(long)arg) {}
        turn = !turn;
    }
    return NULL;
}
static void *watcher(void *u) {
    (void)u;
    while (!over) {}
    return NULL;
}
int main(int argc, char **argv) {
    CHECK(argc == 2);
    rounds = atoi(argv[1]);
    pthread_t players[2], watchers[3];
    for (long i = 0; i < 2; i++) CHECK(pthread_create(&players[i], NULL, player, (void *)i) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&watchers[i], NULL, watcher, NULL) == 0);
    for (int i = 0; i < 2; i++) pthread_join(players[i], NULL);
    over = 1;
    for (int i = 0; i < 3; i++) pthread_join(watchers[i], NULL);
    say("%d rounds", rounds);
}
