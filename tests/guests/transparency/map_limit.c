// A program that has used up its mappings: what runs it still finds memory of its own, when it is run, recorded and replayed.
// variants: pie static
#include "guest.h"
enum { PAGES = 256, EACH = 64, PAGE = 4096, MOST = 70000 };
typedef int (*Function)(int);
static volatile sig_atomic_t signals;
static void count(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)info, (void)context;
    signals++;
}
// add edi, value; lea eax, [rdi]; ret
static void adds(unsigned char *at, int value) {
    memcpy(at, "\x81\xc7\0\0\0\0\x8d\x07\xc3", 9);
    memcpy(at + 2, &value, 4);
}
static unsigned char *map(size_t pages, int prot) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *p = mmap(NULL, pages * PAGE, prot, flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
int main(void) {
    static unsigned char *maps[MOST];
    static char large[1 << 20];
    long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    CHECK(file && fscanf(file, "%ld", &limit) == 1 && fclose(file) == 0);
    unsigned char *code = map(PAGES, PROT_READ | PROT_WRITE | PROT_EXEC);
    CHECK(code);
    on_signal(SIGUSR1, count, 0);
    // Neighbours differ, so that none becomes one with another. Where the limit is out of reach this tests little.
    int n = 0;
    while (n < MOST && (maps[n] = map(1, n % 2 ? PROT_READ : PROT_NONE))) n++;
    CHECK(limit >= MOST || (n < MOST && errno == ENOMEM));
    // Much code that hasn't run before, so much to be known of it.
    int sum = 0;
    for (int i = 0; i < PAGES * EACH; i++) adds(code + i / EACH * PAGE + i % EACH * 64, i);
    for (int i = 0; i < PAGES * EACH; i++) {
        sum = ((Function)(code + i / EACH * PAGE + i % EACH * 64))(sum & 0xffff);
        if (i % 1024 == 0) CHECK(raise(SIGUSR1) == 0);
    }
    say("sum %d, %d signals", sum, (int)signals);
    // Much that comes from outside.
    int zero = open("/dev/zero", O_RDONLY);
    memset(large, 1, sizeof large);
    CHECK(zero >= 0 && read(zero, large, sizeof large) == sizeof large && !memchr(large, 1, sizeof large));
    // Some go, and come again.
    for (int i = 0; i < n; i += 100) CHECK(munmap(maps[i], PAGE) == 0);
    int again = 0;
    for (int i = 0; i < n && i / 100 < 40; i += 100) again += (maps[i] = map(1, PROT_NONE)) != NULL;
    CHECK(again > 0);
    pid_t child = fork();
    if (child == 0) _exit(((Function)code)(7));
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    say_status("child", status);
    return 0;
}
