// Calls through libc, callbacks, recursion, alloca, a signal handler, and code without unwind
// information.
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile int sink;

__attribute__((noinline)) void leaf(int x)
{
    sink += x;
}

static int compare(const void *a, const void *b)
{
    int left = *(const int *)a, right = *(const int *)b;
    leaf(left - right);
    return (left > right) - (left < right);
}

__attribute__((noinline)) static int recurse(int depth, const char *text)
{
    char *copy = alloca(strlen(text) + depth + 1);
    strcpy(copy, text);
    if (depth == 0) {
        int values[] = { 5, 3, 9, 1, 7 };
        qsort(values, 5, sizeof values[0], compare);
        return values[0] + copy[0];
    }
    return recurse(depth - 1, copy) + copy[depth % strlen(copy)];
}

// No unwind information: a frame pointer, then one without.
__asm__(".text\n"
        ".type bare, @function\n"
        "bare:\n"
        "push %rbp\n"
        "mov %rsp, %rbp\n"
        "sub $32, %rsp\n"
        "call bare_leaf\n"
        "leave\n"
        "ret\n"
        ".size bare, . - bare\n"
        ".type bare_leaf, @function\n"
        "bare_leaf:\n"
        "mov $1, %eax\n"
        "add $2, %eax\n"
        "ret\n"
        ".size bare_leaf, . - bare_leaf\n");
int bare(void);

static void handler(int signal)
{
    leaf(signal);
    sink += recurse(2, "handler");
}

int main(void)
{
    signal(SIGUSR1, handler);
    int total = recurse(3, "text");
    total += bare();
    raise(SIGUSR1);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    // A signal in the middle of code, not in a system call.
    __asm__ volatile("ud2" ::: "memory");
    return total == 0;
}
