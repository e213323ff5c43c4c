// A small write-behind queue: clients hand in blocks, workers write them to a file, and a client may take back a
// block that it no longer wants. Jobs come from a pool and go back to it with their last reference.
//
// There is a mistake in it. Hardly any run shows it: `make demo` finds it.
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 2, CLIENTS = 3, JOBS = 12, WAITING = 2, POOL = 8, BLOCK = 256 * 1024 };

struct client {
    const char *name;
    atomic_int written, cancelled;
};

struct job {
    int id;
    int refs;
    atomic_bool cancelled;
    struct client *client;
    const uint8_t *block;
    struct job *next;
};

static struct client clients[CLIENTS] = {{.name = "anna"}, {.name = "ben"}, {.name = "cleo"}};
static uint8_t blocks[CLIENTS][BLOCK];
static int file;

// The lock is for everything below, for the references and for the links of the queue.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t job_waits = PTHREAD_COND_INITIALIZER, room = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;
static int waiting;
static bool closing;
static struct job *unfinished[JOBS];
static struct job pool[POOL], *unused;

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static void say(const char *format, ...)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    char text[80];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("%ld %s\n", now.tv_sec * 1000000 + now.tv_nsec / 1000, text);
}

// Jobs and their references. new_job and free_job are called with the lock taken.

static struct job *new_job(int id, struct client *client, const uint8_t *block)
{
    struct job *job = unused;
    if (job == NULL) fail("pool");
    unused = job->next;
    *job = (struct job){.id = id, .refs = 1, .client = client, .block = block};
    unfinished[id] = job;
    return job;
}

static void free_job(struct job *job)
{
    unfinished[job->id] = NULL;
    memset(job, 0x6b, sizeof *job); // whoever still uses it shall notice
    job->next = unused;
    unused = job;
}

static struct job *find_job(int id)
{
    pthread_mutex_lock(&lock);
    struct job *job = unfinished[id];
    pthread_mutex_unlock(&lock);
    return job;
}

static void hold_job(struct job *job)
{
    pthread_mutex_lock(&lock);
    job->refs++;
    pthread_mutex_unlock(&lock);
}

static void release_job(struct job *job)
{
    pthread_mutex_lock(&lock);
    if (--job->refs == 0) free_job(job);
    pthread_mutex_unlock(&lock);
}

// What clients call.

static void submit(int id, struct client *client, const uint8_t *block)
{
    say("job %d: from %s", id, client->name);
    pthread_mutex_lock(&lock);
    while (waiting == WAITING) pthread_cond_wait(&room, &lock);
    struct job *job = new_job(id, client, block);
    *last = job;
    last = &job->next;
    waiting++;
    pthread_cond_signal(&job_waits);
    pthread_mutex_unlock(&lock);
}

static void cancel(int id)
{
    struct job *job = find_job(id);
    if (job == NULL) {
        say("job %d: too late to cancel", id);
        return;
    }
    hold_job(job);
    job->client->cancelled++;
    job->cancelled = true;
    say("job %d: cancelled", id);
    release_job(job);
}

// What workers do.

static struct job *next_job(void)
{
    pthread_mutex_lock(&lock);
    while (first == NULL && !closing) pthread_cond_wait(&job_waits, &lock);
    struct job *job = first;
    if (job != NULL) {
        first = job->next;
        if (first == NULL) last = &first;
        waiting--;
        pthread_cond_signal(&room);
    }
    pthread_mutex_unlock(&lock);
    return job;
}

static void write_job(struct job *job)
{
    if (pwrite(file, job->block, BLOCK, (off_t)job->id * BLOCK) != BLOCK) fail("pwrite");
    job->client->written++;
}

static void *worker(void *arg)
{
    struct job *job;
    while ((job = next_job()) != NULL) {
        if (!job->cancelled) write_job(job);
        release_job(job);
    }
    return arg;
}

int main(void)
{
    FILE *backing = tmpfile();
    if (backing == NULL) fail("tmpfile");
    file = fileno(backing);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < POOL; i++) {
        pool[i].next = unused;
        unused = &pool[i];
    }

    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&workers[i], NULL, worker, NULL) != 0) fail("pthread_create");

    for (int id = 0; id < JOBS; id++) {
        submit(id, &clients[id % CLIENTS], blocks[id % CLIENTS]);
        if (id % 5 == 4) cancel(id);
    }

    pthread_mutex_lock(&lock);
    closing = true;
    pthread_cond_broadcast(&job_waits);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    for (int i = 0; i < CLIENTS; i++)
        say("%s: %d written, %d cancelled", clients[i].name, clients[i].written, clients[i].cancelled);
    return 0;
}
