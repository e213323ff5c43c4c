// What guests share: CHECK, which says what failed and ends the guest, and `say`,
// which prints a line at once so that order survives forks and crashes.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(cond)                                                                    \
    do {                                                                               \
        if (!(cond)) {                                                                 \
            fprintf(stderr, "%s:%d: CHECK failed: %s (errno %d)\n", __FILE__,          \
                    __LINE__, #cond, errno);                                           \
            _exit(97);                                                                 \
        }                                                                              \
    } while (0)

__attribute__((format(printf, 1, 2), unused)) static void say(const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    text[length++] = '\n';
    if (write(1, text, length) != length) _exit(98);
}

// A seeded generator, so that every run tests the same numbers.
__attribute__((unused)) static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// Installs a SA_SIGINFO handler.
__attribute__((unused)) static void on_signal(int sig, void (*handler)(int, siginfo_t *, void *),
                                              int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    CHECK(sigaction(sig, &action, NULL) == 0);
}

// Prints how a waited-for child ended.
__attribute__((unused)) static void say_status(const char *what, int status) {
    if (WIFEXITED(status))
        say("%s: exit %d", what, WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        say("%s: signal %d%s", what, WTERMSIG(status), WCOREDUMP(status) ? " core" : "");
    else if (WIFSTOPPED(status))
        say("%s: stopped %d", what, WSTOPSIG(status));
    else if (WIFCONTINUED(status))
        say("%s: continued", what);
}
