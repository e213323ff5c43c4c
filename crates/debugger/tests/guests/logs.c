// Lines in a file, by several calls and by a copy of its descriptor; a message to a service, as syslog does; bytes that are no text.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static void note(int fd, const char *text) {
    write(fd, text, strlen(text));
}

int main(void) {
    char folder[] = "/tmp/clew-logs-XXXXXX", path[64];
    struct sockaddr_un service = {AF_UNIX, ""};
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/app.log", folder);
    snprintf(service.sun_path, sizeof service.sun_path, "%s/log", folder);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    note(file, "starts\n");
    int copy = dup(file);
    struct iovec parts[] = {{"two ", 4}, {"parts\n", 6}};
    writev(copy, parts, 2);
    write(file, "\1\2\3", 3);
    int listens = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (bind(listens, (struct sockaddr *)&service, sizeof service)) return 2;
    int sends = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (connect(sends, (struct sockaddr *)&service, sizeof service)) return 3;
    memset(path, 'x', sizeof path);
    send(sends, "<14>to the service", 18, MSG_NOSIGNAL);
    close(copy);
    copy = open("/dev/zero", O_WRONLY);
    note(copy, "to nobody\n");
    note(file, "ends\n");
    unlink(service.sun_path);
    snprintf(path, sizeof path, "%s/app.log", folder);
    unlink(path);
    rmdir(folder);
    puts("done");
    return 0;
}
