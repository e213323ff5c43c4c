// What a recording can't have. The first argument says which; prints "refused" if it fails, "done" if not.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_packet.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long word = 1;
static int mem = -1;

static long in_thread_result;
static void *thread(void *unused) {
    in_thread_result = unshare(CLONE_FILES);
    return unused;
}

// Another process writes to this one's memory, by descriptor, by name, or by call; did it work?
static long other_process(char how) {
    int pair[2];
    mem = open("/proc/self/mem", O_RDWR);
    if (pipe(pair) != 0 || mem < 0) return 0;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        long value = 44, done = -1;
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", parent);
        struct iovec from = {&value, 8}, to = {(void *)&word, 8};
        if (how == 'f') done = pwrite(mem, &value, 8, (off_t)(long)&word);
        if (how == 'o') done = open(path, O_RDWR);
        if (how == 'v') done = process_vm_writev(parent, &from, 1, &to, 1, 0);
        _exit(done >= 0);
    }
    int status;
    waitpid(child, &status, 0);
    return word == 44 || WEXITSTATUS(status) ? 0 : -1;
}

int main(int argc, char **argv) {
    char attributes[128] = {0};
    long done = 0;
    switch (argc > 1 ? argv[1][0] : 0) {
    case 'b': done = syscall(SYS_bpf, 0, attributes, sizeof attributes); break;
    case 'p': done = syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0); break;
    case 't': done = ptrace(PTRACE_TRACEME, 0, 0, 0); break;
    case 'a': done = syscall(SYS_io_setup, 1, attributes); break;
    case 'i': done = syscall(SYS_io_uring_setup, 1, attributes); break;
    case 'u': done = syscall(SYS_userfaultfd, O_CLOEXEC); break;
    case 'd': {
        int fd = open("/dev/mem", O_RDONLY);
        if (fd < 0) fd = open("/dev/fuse", O_RDWR);
        if (fd < 0) fd = open("/dev/null", O_RDONLY);
        done = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0;
        break;
    }
    case 's': {
        pthread_t other;
        pthread_create(&other, NULL, thread, NULL);
        pthread_join(other, NULL);
        done = in_thread_result;
        break;
    }
    default: done = other_process(argv[1][0]);
    }
    puts(done < 0 ? "refused" : "done");
    return 0;
}
