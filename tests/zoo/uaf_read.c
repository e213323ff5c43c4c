// A client's memory is used after it was given back.
// kind: use-after-free
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct client { char *name; long balance; };
static struct client *clients[4];
static struct client *make(const char *name) {
    struct client *client = malloc(sizeof *client);
    client->name = strdup(name);
    client->balance = 10;
    return client;
}
static void close_all(void) {
    for (int at = 0; at < 4; at++) {
        free(clients[at]->name);
        free(clients[at]); // CAUSE
    }
}
static size_t report(struct client *client) { return strlen(client->name) + (size_t)client->balance; }
int main(void) {
    for (int at = 0; at < 4; at++) clients[at] = make("somebody");
    close_all();
    char *other = malloc(sizeof(struct client));
    memset(other, 'x', sizeof(struct client));
    printf("%zu\n", report(clients[3]));
    return 0;
}
