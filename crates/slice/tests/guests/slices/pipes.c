// Bytes that go through a pipe to another process: who made them there.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int result;

int main(int argc, char **argv)
{
    int fds[2];
    pipe(fds);
    int value = atoi(argv[1]);
    if (fork() == 0) {
        int made = value * 7 + 1;
        int words[2] = { 3, made };
        write(fds[1], words, 4);
        write(fds[1], words + 1, 4);
        _exit(0);
    }
    int first, second;
    read(fds[0], &first, 2);
    read(fds[0], (char *)&first + 2, 2);
    read(fds[0], &second, 4);
    wait(NULL);
    result = first + second;
    return result;
}
