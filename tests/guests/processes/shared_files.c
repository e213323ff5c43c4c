// Files that are mapped shared after a process that had mapped another one has died, and while the others who have
// mapped the same one come and go.
#include "guest.h"
#include <fcntl.h>
#define SIZE 8192
static char *map(const char *name, int fill) {
    static char text[SIZE];
    // Just written: it may still change, so there is no copy of it.
    int fd = open(name, O_RDWR | O_CREAT | (fill ? O_TRUNC : 0), 0600);
    CHECK(fd >= 0);
    if (fill) {
        memset(text, fill, sizeof text);
        CHECK(write(fd, text, sizeof text) == sizeof text);
    }
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    close(fd);
    return at;
}
static long count(const char *at, char which) {
    long n = 0;
    for (int i = 0; i < SIZE; i++) n += at[i] == which;
    // As many ticks as there were.
    for (long i = n; i > 0; i--) __asm__ volatile("");
    return n;
}
int main(void) {
    int status;
    volatile char *a = map("a", 'a');
    pid_t child = fork();
    if (child == 0) {
        a[0]++;
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    // Finds that the child is gone; what it leaves behind is used for b.
    volatile char *again = map("a", 0);
    char *b = map("b", 'b');
    say("%ld %c%c", count(b, 'b'), a[0], again[0]);

    // One maps c again and again while another does: each may or may not find the other there.
    CHECK(!munmap(map("c", 'c'), SIZE));
    child = fork();
    long seen = 0;
    for (int n = 0; n < 100; n++) {
        char *c = map("c", 0);
        seen += count(c, 'c');
        CHECK(!munmap(c, SIZE));
    }
    if (child == 0) _exit(seen == 100 * SIZE ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child);
    say_status("child", status);
    say("%ld", seen);
}
