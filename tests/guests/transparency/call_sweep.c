// Thousands of calls with arguments at random, and of options and requests of all numbers: a recording must know each
// byte that the kernel writes. After each call the memory goes into an argument of the next one.
// variants: pie
#include "guest.h"
#include <grp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#define SIZE 8192

static char *memory;
static uint64_t sum;

// Pointers into the memory, small numbers, or nonsense.
static void prepare(int kind) {
    memset(memory, 0xa5, SIZE);
    uint64_t *words = (uint64_t *)memory;
    for (int i = 0; i < 16; i++)
        words[i] = kind % 3 == 0 ? (uintptr_t)(memory + SIZE / 2 + i * 128) : kind % 3 == 1 ? 64 : 0xa5a5a5a5a5a5a5a5;
}

// A recording that doesn't know what was written replays with another argument.
static void look(long result) {
    uint64_t *words = (uint64_t *)memory;
    for (int i = 0; i < SIZE / 8; i++) sum = (sum ^ words[i]) * 0x9e3779b97f4a7c15;
    sum = (sum ^ (uint64_t)result) * 0x9e3779b97f4a7c15;
    syscall(SYS_getppid, sum);
}

static void options(void) {
    static const int kinds[][3] = {
        {AF_INET, SOCK_STREAM, 0}, {AF_INET, SOCK_DGRAM, 0},  {AF_INET6, SOCK_STREAM, 0},    {AF_INET6, SOCK_DGRAM, 0},
        {AF_UNIX, SOCK_STREAM, 0}, {AF_NETLINK, SOCK_RAW, 0}, {AF_ALG, SOCK_SEQPACKET, 0}, {AF_VSOCK, SOCK_STREAM, 0},
    };
    static const int levels[] = {0, 1, 6, 17, 41, 58, 132, 263, 270, 279, 284};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int fd = socket(kinds[k][0], kinds[k][1] | SOCK_NONBLOCK, kinds[k][2]);
        if (fd < 0) continue;
        for (size_t level = 0; level < sizeof levels / sizeof *levels; level++)
            for (int option = 0; option < 100; option++) {
                socklen_t len = option % 2 ? SIZE / 2 : 13;
                prepare(option);
                long result = getsockopt(fd, levels[level], option, memory, &len);
                look(result + len);
            }
        close(fd);
    }
}

static void requests(void) {
    int ends[2], fds[16], count = 0;
    CHECK(pipe(ends) == 0);
    fds[count++] = ends[0];
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (terminal >= 0) fds[count++] = terminal;
    fds[count++] = open("/dev/null", O_RDWR);
    fds[count++] = open(".", O_RDONLY);
    fds[count++] = open("file", O_RDWR | O_CREAT, 0600);
    fds[count++] = open("/proc/self/pagemap", O_RDONLY);
    fds[count++] = open("/proc/self/ns/net", O_RDONLY);
    fds[count++] = epoll_create1(0);
    fds[count++] = timerfd_create(CLOCK_MONOTONIC, 0);
    fds[count++] = inotify_init1(IN_NONBLOCK);
    fds[count++] = eventfd(0, EFD_NONBLOCK);
    fds[count++] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    // Those that hang up, wait, push input or exchange the peer's descriptor have other tests.
    static const unsigned left_out[] = {0x5403, 0x5404, 0x5407, 0x5408, 0x5409, 0x540e, 0x5412, 0x5425, 0x5437, 0x5441};
    static const int types[] = {'f', 'X', 'v', 0x94};
    for (int i = 0; i < count; i++) {
        for (unsigned request = 0x5400; request < 0x5480; request++) {
            int skip = 0;
            for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++) skip |= left_out[k] == request;
            if (skip) continue;
            int flags = fcntl(fds[i], F_GETFL);
            prepare(request);
            look(ioctl(fds[i], request, memory));
            fcntl(fds[i], F_SETFL, flags);
        }
        for (unsigned request = 0x8900; request < 0x89a0; request++) {
            prepare(request);
            look(ioctl(fds[i], request, memory));
        }
        for (size_t type = 0; type < sizeof types / sizeof *types; type++)
            for (unsigned number = 0; number < 48; number++) {
                static const unsigned sizes[] = {8, 32, 96};
                unsigned size = sizes[number % 3];
                prepare(1);
                look(ioctl(fds[i], 2u << 30 | 8 << 16 | types[type] << 8 | number, memory));
                prepare(number);
                look(ioctl(fds[i], 3u << 30 | size << 16 | types[type] << 8 | number, memory));
            }
    }
    for (int i = 0; i < count; i++) close(fds[i]);
}

static void commands(int file) {
    for (int command = 0; command < 34; command++)
        for (int kind = 0; kind < 3; kind++) {
            prepare(kind);
            look(syscall(SYS_keyctl, command, -3 + kind, memory, 1024, memory + 4096));
        }
    for (int command = 1; command < 24; command++) {
        prepare(command);
        look(syscall(SYS_shmctl, 0, command, memory));
        look(syscall(SYS_msgctl, 0, command, memory));
        look(syscall(SYS_semctl, 0, 0, command, memory));
    }
    for (int nodes = 1; nodes < 100000; nodes *= 3) {
        prepare(nodes);
        look(syscall(SYS_get_mempolicy, memory, memory + 1024, nodes, 0, 0));
    }
    for (int command = 0; command < 1050; command++) {
        if (command == F_SETLKW || command == F_OFD_SETLKW || (command > 40 && command < 1024)) continue;
        prepare(1);
        long result = fcntl(file, command, memory);
        look(result);
        if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && result >= 0) close((int)result);
    }
}

// Calls that end, wait, take memory or privileges away, send signals, or leave something behind for others.
static int is_left_out(long nr) {
    static const short all[] = {
        0,   1,   3,   7,   9,   10,  11,  12,  13,  14,  15,  19,  20,  22,  23,  25,  28,  30,  32,  33,  34,  35,  37,  38,
        42,  43,  45,  47,  48,  56,  57,  58,  59,  60,  61,  62,  64,  65,  67,  68,  69,  70,  73,  80,  81,  82,  83,  84,
        85,  86,  87,  88,  95,  101, 105, 106, 109, 112, 113, 114, 116, 117, 119, 122, 123, 126, 127, 128, 129, 130, 131, 133,
        134, 135, 141, 142, 144, 149, 150, 151, 152, 153, 154, 155, 157, 158, 160, 161, 162, 163, 164, 165, 166, 167, 168, 169,
        170, 171, 172, 173, 175, 176, 200, 202, 203, 206, 207, 208, 209, 210, 213, 216, 218, 219, 220, 222, 227, 230, 231, 232,
        234, 240, 241, 242, 243, 244, 246, 247, 250, 253, 256, 258, 259, 260, 263, 264, 265, 266, 268, 270, 271, 272, 273, 275,
        276, 278, 279, 281, 282, 283, 284, 288, 289, 290, 291, 292, 293, 294, 297, 298, 299, 300, 302, 305, 308, 311, 313, 314,
        316, 317, 319, 320, 321, 322, 323, 329, 330, 334, 335, 336, 424, 425, 426, 427, 434, 435, 436, 438, 440, 441, 444, 445,
        446, 447, 448, 449, 450, 453, 454, 455, 456, 460, 462,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == nr) return 1;
    return nr >= 337 && nr < 424;
}

static void calls(int file) {
    uint64_t state = 10;
    for (int i = 0; i < 6000; i++) {
        long nr = (long)(next_random(&state) % 470);
        uint64_t arguments[6];
        for (int k = 0; k < 6; k++) {
            uint64_t random = next_random(&state);
            uint64_t choices[8] = {
                (uintptr_t)(memory + k * 1024), (uintptr_t)(memory + k * 1024), (uintptr_t)(memory + k * 1024), (uint64_t)file, 0,
                random >> 57, 4096, 1,
            };
            arguments[k] = choices[random % 8];
        }
        if (is_left_out(nr)) continue;
        prepare(i);
        if (i % 5 == 0) strcpy(memory, "file");
        if (i % 7 == 0) strcpy(memory + 1024, "/proc/self/status");
        long result = syscall(nr, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
        look(result);
        int opens = nr == SYS_open || nr == SYS_openat || nr == 437 || nr == SYS_socket;
        if (opens && result > 2 && result != file) close((int)result);
    }
}

int main(void) {
    // A recording has a line about each request that nobody knows.
    CHECK(dup2(open("/dev/null", O_WRONLY), 2) == 2);
    // Whoever may do everything would.
    if (getuid() == 0) {
        CHECK(chmod(".", 0777) == 0);
        CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
    }
    // Calls that are told to write more than there is come to an end.
    memory = mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memory += SIZE;
    CHECK(mprotect(memory + 2 * SIZE, SIZE, PROT_NONE) == 0);
    int file = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && ftruncate(file, 100000) == 0);
    options();
    say("options");
    requests();
    say("requests");
    commands(file);
    say("commands");
    // Numbers that are taken for descriptors must not be the output's.
    int output = fcntl(1, F_DUPFD, 200), null = open("/dev/null", O_RDWR);
    CHECK(output >= 200 && dup2(null, 0) == 0 && dup2(null, 1) == 1);
    calls(file);
    CHECK(dup2(output, 1) == 1);
    say("calls");
    unlink("file");
    return 0;
}
