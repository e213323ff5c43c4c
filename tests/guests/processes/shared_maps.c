// Memory shared by name: System V segments, files, memfds. It is mapped by a program that execs, and by
// processes that were forked before. System calls read and write it; files are written behind it.
#include "guest.h"
#include <sched.h>
#include <stdatomic.h>
#include <sys/shm.h>
#include <sys/uio.h>
#define ROUNDS 40
struct memory {
    atomic_int turn;
    int value[100];
    char text[64];
};
static void play(struct memory *memory, int me) {
    for (int i = 0; i < ROUNDS; i++) {
        while (atomic_load(&memory->turn) % 2 != me) sched_yield();
        memory->value[i] = memory->value[(i + 99) % 100] * 3 + me + i;
        atomic_fetch_add(&memory->turn, 1);
    }
}
static struct memory *map(int fd) {
    void *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    return at;
}
static void pipes(struct memory *memory) {
    // The child must touch the memory before the parent's read into it can end.
    int there[2], back[2];
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    strcpy(memory->text, "from the parent");
    pid_t child = fork();
    if (child == 0) {
        char got[64];
        CHECK(read(there[0], got, 16) == 16 && !strcmp(got, "from the parent"));
        memory->value[0] = 77;
        CHECK(write(back[1], memory->value, 4) == 4);
        memory->value[1] = 78;
        _exit(0);
    }
    CHECK(write(there[1], memory->text, 16) == 16);
    struct iovec parts[] = {{memory->text, 2}, {memory->value + 2, 2}};
    CHECK(readv(back[0], parts, 2) == 4);
    CHECK(waitpid(child, NULL, 0) == child);
    say("pipes %d %d %d", memory->text[0], memory->value[0], memory->value[1]);
}
int main(int argc, char **argv) {
    if (argc > 2) {
        struct memory *memory;
        if (argv[1][0] == 's') {
            memory = shmat(atoi(argv[2]), NULL, 0);
            CHECK(memory != (void *)-1);
        } else {
            int fd = argv[1][0] == 'm' ? atoi(argv[2]) : open(argv[2], O_RDWR);
            memory = map(fd);
            close(fd);
        }
        play(memory, 1);
        while (atomic_load(&memory->turn) != 2 * ROUNDS) sched_yield();
        return memory->value[ROUNDS - 1] & 63;
    }
    for (int kind = 0; kind < 4; kind++) {
        static const char *const names[] = {"segment", "posix", "file", "memfd"};
        struct memory *memory;
        char name[64];
        int id = -1, fd = -1;
        snprintf(name, sizeof name, "%s/clew-guest-%d", kind == 1 ? "/dev/shm" : "/tmp", getpid());
        if (kind == 0) {
            CHECK((id = shmget(IPC_PRIVATE, 8192, 0600)) >= 0);
            memory = shmat(id, NULL, 0);
            CHECK(memory != (void *)-1);
            snprintf(name, sizeof name, "%d", id);
        } else {
            fd = kind == 3 ? memfd_create("guest", 0) : open(name, O_RDWR | O_CREAT, 0600);
            CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
            memory = map(fd);
            if (kind == 3) snprintf(name, sizeof name, "%d", fd);
        }
        memory->value[99] = 5;
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "shared_maps", kind == 0 ? "s" : kind == 3 ? "m" : "f", name, NULL);
            _exit(96);
        }
        play(memory, 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        say("%s %d %d", names[kind], memory->value[ROUNDS - 1], memory->value[10]);
        say_status("child", status);
        pipes(memory);
        if (fd >= 0) {
            // Another process, which has nothing of it mapped, writes to the file itself while this one looks.
            volatile char *text = (char *)memory + 4096;
            text[0] = 0;
            child = fork();
            if (child == 0) {
                munmap(memory, 8192);
                CHECK(pwrite(fd, "through the file", 17, 4096) == 17);
                _exit(0);
            }
            while (!text[0]) sched_yield();
            CHECK(waitpid(child, NULL, 0) == child);
            say("%s", (char *)memory + 4096);
            close(fd);
        }
        if (kind == 0) CHECK(shmdt(memory) == 0 && shmctl(id, IPC_RMID, NULL) == 0);
        else CHECK(munmap(memory, 8192) == 0 && (kind == 3 || unlink(name) == 0));
    }
}
