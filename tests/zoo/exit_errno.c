// A file that isn't there, and a message that doesn't say which.
// kind: exit
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static const char *path = "/nonexistent/settings";
static int open_settings(void) {
    int fd = open(path, O_RDONLY); // CAUSE
    return fd;
}
int main(void) {
    int fd = open_settings();
    if (fd < 0) {
        fprintf(stderr, "can't start: %s\n", strerror(errno));
        exit(3);
    }
    close(fd);
    return 0;
}
