// Threads that share some memory and keep some for themselves, each in a function of its own.
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#define APART __attribute__((noinline, noipa))

typedef long vector __attribute__((vector_size(32)));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long racy, guarded, counted, exchanged;
// Side by side, each of them one thread's.
static volatile long own[3];
static volatile char bytes[3];
static __thread volatile long mine;
static char text[] = "something that is copied from here to there by one instruction, again and again";
static char copied[sizeof text];
static volatile vector wide = {1, 2, 3, 4};
// Read by all, written by nobody.
static volatile long table[4] = {1, 1, 2, 3};
// Lies across a boundary of granules.
static struct { char room[13]; volatile long word __attribute__((packed)); } __attribute__((packed, aligned(16))) odd;

APART static void bump_racy(void) { racy = racy + 1; }
APART static void bump_guarded(void) { guarded = guarded + 1; }
APART static void bump_own(long me) { own[me] = own[me] + 1; }
APART static void bump_byte(long me) { bytes[me] = bytes[me] + 1; }
APART static void bump_mine(void) { mine = mine + 1; }
APART static void bump_stack(volatile long *there) { *there = *there + 1; }
APART static void bump_odd(void) { odd.word = odd.word + 1; }
APART static void count(void) { __atomic_fetch_add(&counted, 1, __ATOMIC_SEQ_CST); }
APART static void exchange(long me) { __atomic_exchange_n(&exchanged, me, __ATOMIC_SEQ_CST); }
APART static void read_table(long me) { mine += table[me & 3]; }
APART static void copy_in(void) {
    char *to = copied;
    const char *from = text;
    long n = sizeof text;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}
APART static char copy_out(char *to) {
    const char *from = copied;
    long n = sizeof text;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
    return to[-2];
}
APART static void write_wide(void) {
    __asm__ volatile("vpxor %%xmm0, %%xmm0, %%xmm0\n\tvmovdqu %%ymm0, %0" : "=m"(wide) : : "xmm0");
}
APART static void read_wide(void) {
    __asm__ volatile("vmovdqu %0, %%ymm0" : : "m"(wide) : "xmm0");
}
APART static long own_stack(long n) {
    volatile long here[4] = {n, n, n, n};
    for (int i = 0; i < 4; i++)
        here[i] = here[(i + 1) & 3] + 1;
    return here[2];
}

// A child that borrows this process's memory until it has a program of its own.
APART static void spawn(void) {
    char *arguments[] = {"true", NULL};
    pid_t child;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, arguments + 1) == 0)
        waitpid(child, NULL, 0);
}

struct job { long me; volatile long *theirs; };

static void *worker(void *argument) {
    struct job *job = argument;
    long me = job->me;
    for (int i = 0; i < 3; i++) {
        bump_racy();
        pthread_mutex_lock(&lock);
        bump_guarded();
        pthread_mutex_unlock(&lock);
        bump_own(me);
        bump_byte(me);
        bump_mine();
        count();
        exchange(me);
        read_table(me);
        own_stack(me);
        bump_odd();
    }
    bump_stack(job->theirs);
    if (me == 1)
        copy_in(), write_wide();
    return NULL;
}

int main(int argc, char **argv) {
    volatile long on_stack[2] = {0, 0};
    struct job jobs[2] = {{1, &on_stack[0]}, {2, &on_stack[1]}};
    char room[sizeof text];
    pthread_t threads[2];
    for (int n = 0; n < 2; n++)
        pthread_create(&threads[n], NULL, worker, &jobs[n]);
    bump_own(0);
    bump_byte(0);
    own_stack(7);
    spawn();
    for (int n = 0; n < 2; n++)
        pthread_join(threads[n], NULL);
    char last = copy_out(room);
    read_wide();
    if (argc > 1) {
        // Stacks of threads that are gone are used again.
        jobs[0].me = 2;
        pthread_create(&threads[0], NULL, worker, &jobs[0]);
        pthread_join(threads[0], NULL);
    }
    printf("%ld %ld %c\n", racy + guarded + counted, on_stack[0] + on_stack[1], last);
    return 0;
}
