// Writing to the process's own memory through the kernel: /proc/self/mem by all its names, process_vm_writev.
// variants: pie static
#include "guest.h"
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static volatile long word = 1;

// Code that is written over: `mov $1, %eax` becomes `mov $2, %eax`.
__attribute__((noinline, aligned(64))) static int number(void) {
    int n;
    asm volatile("mov $1, %0" : "=a"(n));
    return n;
}

// What a call returned, and whether it failed as expected.
#define TRY(what, call, error)                                   \
    do {                                                         \
        long result = (call);                                    \
        say("%s %ld %d", what, result, errno == (error));        \
    } while (0)

static void write_at(int fd, volatile void *to, const void *from, size_t len) {
    CHECK(pwrite(fd, from, len, (off_t)(uintptr_t)to) == (ssize_t)len);
}

static int opened(int dir, const char *path, int flags) {
    int fd = openat(dir, path, flags);
    CHECK(fd >= 0);
    return fd;
}

static int passed(int fd) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char byte = 0, control[CMSG_SPACE(sizeof fd)];
    memset(control, 0, sizeof control);
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    CHECK(recvmsg(pair[1], &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

int main(void) {
    char path[64];
    long value = 42;
    int fd = opened(AT_FDCWD, "/proc/self/mem", O_RDWR);
    write_at(fd, &word, &value, 8);
    say("pwrite %ld", word);
    value = 43;
    CHECK(lseek(fd, (off_t)(uintptr_t)&word, SEEK_SET) == (off_t)(uintptr_t)&word);
    CHECK(write(fd, &value, 8) == 8);
    say("write %ld, then at +%ld", word, (long)(lseek(fd, 0, SEEK_CUR) - (off_t)(uintptr_t)&word));
    uint32_t halves[2] = {44, 0};
    struct iovec parts[2] = {{&halves[0], 4}, {&halves[1], 4}};
    CHECK(pwritev(fd, parts, 2, (off_t)(uintptr_t)&word) == 8);
    say("pwritev %ld", word);
    value = 45;
    write_at(passed(fd), &word, &value, 8);
    say("passed %ld", word);
    value = 46;
    write_at(dup(fd), &word, &value, 8);
    say("dup %ld", word);
    value = 47;
    write_at(opened(opened(AT_FDCWD, "/proc/self", O_RDONLY | O_DIRECTORY), "mem", O_WRONLY), &word, &value, 8);
    say("by folder %ld", word);
    value = 48;
    write_at(opened(AT_FDCWD, "/proc/thread-self/mem", O_RDWR), &word, &value, 8);
    say("thread-self %ld", word);
    value = 49;
    snprintf(path, sizeof path, "/proc/self/task/%ld/mem", syscall(SYS_gettid));
    write_at(opened(AT_FDCWD, path, O_RDWR), &word, &value, 8);
    say("task %ld", word);
    value = 50;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    write_at(opened(AT_FDCWD, path, O_RDWR), &word, &value, 8);
    say("again %ld", word);

    // Where the program itself may not write.
    char *page = mmap(NULL, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    write_at(fd, page, "read-only", 10);
    say("%s", page);
    CHECK(mprotect(page + 4096, 4096, PROT_NONE) == 0);
    write_at(fd, page + 4090, "across pages", 13);
    CHECK(mprotect(page + 4096, 4096, PROT_READ) == 0);
    say("%s", page + 4090);
    CHECK(munmap(page + 2 * 4096, 4096) == 0);
    char many[8192] = {7};
    say("up to the end %zd", pwrite(fd, many, sizeof many, (off_t)(uintptr_t)(page + 4096)));
    TRY("nowhere", pwrite(fd, many, 8, (off_t)(uintptr_t)(page + 2 * 4096)), EIO);
    TRY("bad source", pwrite(fd, page + 2 * 4096, 8, (off_t)(uintptr_t)page), EFAULT);
    int memory = memfd_create("shared", 0);
    CHECK(ftruncate(memory, 4096) == 0);
    char *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0);
    TRY("shared", pwrite(fd, many, 8, (off_t)(uintptr_t)shared), EIO);
    CHECK(mprotect(shared, 4096, PROT_READ | PROT_WRITE) == 0);
    write_at(fd, shared, "shared", 7);
    say("%s", shared);
    off_t start = 0;
    TRY("sendfile", sendfile(fd, memory, &start, 4), EINVAL);

    // Code.
    say("code %d", number());
    unsigned char *code = (unsigned char *)number;
    int at = 0;
    while (code[at] != 0xb8) at++;
    for (unsigned char n = 2; n < 5; n++) {
        write_at(fd, code + at + 1, &n, 1);
        say("code %d", number());
    }

    // The other call.
    value = 60;
    struct iovec from = {&value, 8}, to = {(void *)&word, 8};
    CHECK(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == 8);
    say("process_vm_writev %ld", word);
    to.iov_base = page;
    TRY("read-only", process_vm_writev(getpid(), &from, 1, &to, 1, 0), EFAULT);
    long got = 0;
    CHECK(pread(fd, &got, 8, (off_t)(uintptr_t)&word) == 8);
    say("pread %ld", got);
    return 0;
}
