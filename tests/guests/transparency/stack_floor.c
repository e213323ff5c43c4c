// How far the main stack grows: limits that aren't whole pages, mappings below it, and after they are gone.
// variants: pie static
#include "guest.h"
#include <sys/resource.h>

static sigjmp_buf back;

static void faulted(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)info, (void)context;
    siglongjmp(back, 1);
}

// How many pages below `from` can be written to, in steps of `step` pages.
static long reach(char *from, long step) {
    volatile long pages = 0;
    if (sigsetjmp(back, 1)) return pages;
    for (;;) {
        from[-(pages + step) * 4096] = 1;
        pages += step;
    }
}

static void in_child(const char *what, void (*body)(char *)) {
    pid_t child = fork();
    if (child == 0) {
        char here;
        body((char *)((uintptr_t)&here & ~4095ul));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say_status(what, status);
}

static void limited(char *top) {
    // Where the stack ends isn't known to the page: how much less a smaller limit is.
    struct rlimit limit = {700000, 8 << 20};
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
    long odd = reach(top, 1);
    limit.rlim_cur = 172 * 4096;
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
    say("172 pages: %ld more", reach(top, 1) - odd);
    limit.rlim_cur = 900001;
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
    say("219 pages: %ld more", reach(top, 1) - odd);
    limit.rlim_cur = 4096;
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
    say("what has grown stays: %ld", reach(top, 1) - odd);
}

static void below(char *top, int prot) {
    char *page = mmap(top - (2 << 20), 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(page == top - (2 << 20));
    say("%s", reach(top, 1) < 256 ? "a guard gap" : "no gap");
    CHECK(mprotect(page, 4096, PROT_NONE) == 0);
    say("up to it: %ld", reach(top, 1));
    CHECK(munmap(page, 4096) == 0);
    say("further: %d", reach(top, 1) > 512);
}

static void open_page(char *top) { below(top, PROT_READ); }
static void closed_page(char *top) { below(top, PROT_NONE); }

int main(void) {
    char *stack = malloc(65536);
    stack_t other = {.ss_sp = stack, .ss_size = 65536};
    CHECK(sigaltstack(&other, NULL) == 0);
    on_signal(SIGSEGV, faulted, SA_ONSTACK | SA_NODEFER);
    in_child("limits", limited);
    in_child("an open page below", open_page);
    in_child("a closed page below", closed_page);
    return 0;
}
