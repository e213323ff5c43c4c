// A descriptor is closed twice, and the second time it is somebody else's.
// held: out
// kind: exit
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int save(int fd, const char *text) {
    ssize_t put = write(fd, text, strlen(text));
    close(fd);
    return put < 0;
}
int main(void) {
    int one = open("/dev/null", O_WRONLY);
    save(one, "first");
    int two = open("/dev/null", O_WRONLY);
    close(one); // CAUSE
    if (save(two, "second")) {
        perror("save");
        return 1;
    }
    return 0;
}
