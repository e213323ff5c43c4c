// Questions about a whole run, and the program's own answers: it prints each call of `traced` with its arguments and what
// it returned (or that it didn't), and each change of `watched`.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>

static char lines[1 << 16];
static int used, ids;
int watched = 1;
volatile int sink;
static jmp_buf buffer;

#define LOG(...) used += snprintf(lines + used, sizeof lines - used, __VA_ARGS__)

struct Wide {
    long a, b, c;
};

static void set(int value) {
    LOG("set %d %d\n", watched, value);
    watched = value;
}

// Two calls deep, so that what it does isn't where it is called.
__attribute__((noinline)) double traced(int n, const char *name, double x);

__attribute__((noinline)) double work(int id, int n, double x) {
    if (n == 13)
        throw std::runtime_error("thirteen");
    if (n == 14)
        longjmp(buffer, 1);
    if (n == 15)
        raise(SIGUSR1);
    double result = n > 0 && n < 5 ? traced(n - 1, "deeper", x / 2) + 1 : x * n;
    LOG("leave %d %.17g\n", id, result);
    return result;
}

__attribute__((noinline)) double traced(int n, const char *name, double x) {
    int id = ids++;
    LOG("enter %d %d %s %g\n", id, n, name, x);
    double result = work(id, n, x);
    sink = n;
    return result;
}

// At -O2 this is a jump: both return at once.
__attribute__((noinline)) double tail(int n) {
    return traced(n, "tail", 0.25);
}

__attribute__((noinline)) Wide wide(long n) {
    Wide made = {n, n + 1, n + 2};
    sink = n;
    return made;
}

// A loop that may begin at its first instruction.
__attribute__((noinline)) int length(const char *text) {
    int n = 0;
    do
        sink = n++;
    while (*text++);
    return n;
}

static inline __attribute__((always_inline)) int copied(int n) {
    return n * sink;
}

static void handler(int) {
    traced(2, "handler", 8);
}

static void *thread(void *) {
    for (int i = 20; i < 23; i++)
        traced(i, "thread", 1);
    return nullptr;
}

int main() {
    // On a stack of its own, above or below: that is no return.
    static char other[64 << 10];
    stack_t stack = {};
    stack.ss_sp = other;
    stack.ss_size = sizeof other;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    traced(3, "recursion", 100);
    for (int i = 0; i < 3; i++) {
        try {
            traced(13, "throws", i);
        } catch (const std::runtime_error &) {
            set(watched * 2);
        }
    }
    for (volatile int i = 0; i < 2; i = i + 1)
        if (setjmp(buffer) == 0)
            traced(14, "jumps", i);
    traced(15, "signal", 3);
    sink = tail(30);
    pthread_t other_thread;
    pthread_create(&other_thread, nullptr, thread, nullptr);
    pthread_join(other_thread, nullptr);
    set(-7);
    set(-7);
    set(1000);
    sink = wide(5).c + length("four") + copied(3);
    if (write(1, lines, used) != used)
        return 1;
    fprintf(stderr, "to %s\n", "stderr");
    printf("done\n");
    return 0;
}
