// A descriptor that is used after it was closed: by then it may be another file's. What is shared is in the kernel.
#include "bug.h"
#include <fcntl.h>
#include <sys/syscall.h>
static volatile int report = -1;
static int ends[2];
static void *reporter(void *arg) {
    int fd = report;
    work(60);
    if (fd >= 0) (void)!write(fd, "report\n", 7);
    return arg;
}
static void *rotator(void *arg) {
    work(400);
    int old = report;
    report = -1;
    close(old);
    if (pipe2(ends, O_NONBLOCK) != 0) exit(3);
    return arg;
}
int main(void) {
    int null = open("/dev/null", O_WRONLY);
    report = open("/dev/null", O_WRONLY);
    close(null);
    pthread_t threads[] = {start(reporter, NULL), start(rotator, NULL)};
    join(threads[0]);
    join(threads[1]);
    char text[8];
    assert(read(ends[0], text, sizeof text) <= 0);
    return 0;
}
