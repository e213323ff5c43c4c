// A program that goes around the library: system calls of its own. In a replay the kernel refuses them.
// variants: pie
// flags: -pthread
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>

static long raw(long nr, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
int main(void) {
    long file = raw(SYS_open, (long)"leak", O_CREAT | O_WRONLY, 0600);
    long secret = raw(SYS_open, (long)"/etc/passwd", O_RDONLY, 0);
    long link = raw(SYS_socket, 1, 1, 0);
    long child = raw(SYS_fork, 0, 0, 0);
    if (child == 0) raw(SYS_exit_group, 0, 0, 0);
    long parent = raw(SYS_kill, raw(SYS_getppid, 0, 0, 0), 0, 0);
    printf("%d %d %d %d %d\n", file >= 0, secret >= 0, link >= 0, child > 0, parent == 0);
    return 0;
}
