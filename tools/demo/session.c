// A session's pointer is overwritten by another thread, whose copy of a name is too long.
// Nobody notices until the session is closed, much later.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct session {
    char name[16];
    struct session *parent;
    int open;
};
static struct session root = { "root", NULL, 1 };
static struct session session = { "session", &root, 1 };

static void rename_session(struct session *s, const char *name)
{
    memcpy(s->name, name, strlen(name) + 1);
}

static void *renamer(void *arg)
{
    char name[40];
    for (int i = 1; i <= 20000; i++) {
        snprintf(name, sizeof name, i == 12345 ? "session with number %d" : "session %d", i);
        rename_session(&session, name);
    }
    return arg;
}

static void close_session(struct session *s)
{
    s->open = 0;
    s->parent->open--;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, renamer, NULL);
    pthread_join(thread, NULL);
    close_session(&session);
    puts("closed");
    return 0;
}
