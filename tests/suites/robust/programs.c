// What the suite `robust` records. The first argument says which.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static long next;

static void say(long number) {
    char text[32];
    int len = sprintf(text, "%ld\n", number);
    if (write(1, text, len) != len) _exit(9);
}

static void compute(void) {
    for (volatile int n = 0; n < 20000; n++) {
    }
}

// Counts for ever, with system calls.
static void count(void) {
    for (long n = 0;; n++) {
        say(n);
        for (int k = 0; k < 20; k++) syscall(SYS_getppid);
        compute();
    }
}

static void *counter(void *unused) {
    for (;;) {
        pthread_mutex_lock(&first);
        say(next++);
        pthread_mutex_unlock(&first);
        compute();
        usleep(100);
    }
    return unused;
}

static void threads(void) {
    pthread_t thread;
    for (int n = 0; n < 3; n++) pthread_create(&thread, NULL, counter, NULL);
    counter(NULL);
}

// Two threads, each with a lock that the other wants.
static void *other(void *unused) {
    pthread_mutex_lock(&second);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&first);
    return unused;
}

static void two_threads(void) {
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);
    pthread_mutex_lock(&first);
    pthread_barrier_wait(&both);
    puts("waiting");
}

static void read_for_ever(void) {
    int ends[2];
    char byte;
    if (pipe(ends) == 0 && read(ends[0], &byte, 1)) _exit(9);
}

// More than a gigabyte of data from outside.
static void much(void) {
    static char buffer[32 << 10];
    int zero = open("/dev/zero", O_RDONLY);
    for (int n = 0; n < 40000; n++)
        if (read(zero, buffer, sizeof buffer) != sizeof buffer) _exit(9);
    puts("done");
    read(0, buffer, 1);
}

// A little of everything, to the end.
static volatile int handled;
static void handler(int signo) { handled = signo; }

static void *short_thread(void *arg) {
    pthread_mutex_lock(&first);
    next += (long)arg;
    pthread_mutex_unlock(&first);
    return NULL;
}

static void little(void) {
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int zero = open("/dev/urandom", O_RDONLY);
    if (read(zero, memory, 5000) != 5000) _exit(9);
    memory = mremap(memory, 1 << 20, 2 << 20, MREMAP_MAYMOVE);
    char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_t thread[3];
    for (long n = 0; n < 3; n++) pthread_create(&thread[n], NULL, short_thread, (void *)n);
    for (int n = 0; n < 3; n++) pthread_join(thread[n], NULL);
    pid_t child = fork();
    if (child == 0) {
        shared[1] = 1;
        say(77);
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    munmap(memory, 1 << 20);
    say(next + handled + WEXITSTATUS(status));
}

static void child(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, NULL, 0);
}

// If it reads a 1, it puts machine code into clew's code cache, over what it is running itself, to
// make a file; or, as a bomb, to fork six times in a row, and so make 63 more of itself that
// wait for ever.
static void escape(char bomb) {
    char flag = 0;
    if (bomb) child();
    if (read(0, &flag, 1) < 0) _exit(9);
    static const unsigned char code[] = {
        0xbf, 0xff, 0x1f, 0x00, 0x5b,  // mov edi, 0x5b001fff
        0xb9, 0x00, 0x20, 0x00, 0x00,  // mov ecx, 0x2000
        0xfd, 0xf3, 0xa4,              // std; rep movsb: downwards, so that all is there when
        0xfc, 0xc3,                    // the copy comes to its own place
    };
    // rax: creat; rdi: the name; then exit.
    static const unsigned char shell[] = {
        0xb8, 85, 0, 0, 0, 0xbf, 0x00, 0x00, 0x00, 0x30, 0xbe, 0xff, 0x01, 0, 0, 0x0f, 0x05,
        0xb8, 231, 0, 0, 0, 0xbf, 77, 0, 0, 0, 0x0f, 0x05,
    };
    static const unsigned char forks[] = {
        0xbb, 6,    0,    0, 0,        // mov ebx, 6
        0xb8, 57,   0,    0, 0,        // again: fork
        0x0f, 0x05, 0xff, 0xcb,        // syscall; dec ebx
        0x75, 0xf5,                    // jnz again
    };
    static const unsigned char clones[] = {
        0xbb, 6,    0,    0,    0,           // mov ebx, 6
        0xb8, 56,   0,    0,    0,           // again: clone
        0xbf, 0x11, 0x80, 0,    0,           // as workers are made: CLONE_PARENT | SIGCHLD
        0x31, 0xf6, 0x31, 0xd2,              // xor esi, esi; xor edx, edx
        0x45, 0x31, 0xd2, 0x45, 0x31, 0xc0,  // xor r10d, r10d; xor r8d, r8d
        0x0f, 0x05, 0xff, 0xcb,              // syscall; dec ebx
        0x75, 0xe6,                          // jnz again
    };
    static const unsigned char waits[] = {
        0xbf, 0x00, 0x00, 0x00, 0x30,          // wait: mov edi, the name
        0x31, 0xf6, 0xba, 'e',  's', 'c', 'a',  // xor esi, esi; mov edx, its first bytes
        0x45, 0x31, 0xd2,                      // xor r10d, r10d
        0xb8, 202,  0,    0,    0,             // futex: wait for it to change
        0x0f, 0x05, 0xeb, 0xe8,                // syscall; jmp wait
    };
    unsigned char *run = mmap((void *)0x30010000, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    char *name = mmap((void *)0x30000000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    unsigned char *sled = mmap(NULL, 0x2000, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(name, "escaped");
    memset(sled, 0x90, 0x2000);
    unsigned char *end = sled + 0x2000;
    if (bomb) {
        size_t len = bomb == 'f' ? sizeof forks : sizeof clones;
        memcpy(end -= sizeof waits, waits, sizeof waits);
        memcpy(end - len, bomb == 'f' ? forks : clones, len);
    } else
        memcpy(end - sizeof shell, shell, sizeof shell);
    memcpy(run, code, sizeof code);
    if (flag == '1') {
        void (*function)(int, unsigned char *) = (void (*)(int, unsigned char *))run;
        for (int n = 0; n < 3; n++) function(0, sled + 0x1fff);
    }
    if (bomb) child(), child();
    puts("stayed");
}

static void put(const char *bytes, size_t len) {
    while (len) {
        ssize_t done = write(1, bytes, len);
        if (done <= 0) _exit(9);
        bytes += done;
        len -= done;
    }
}

static size_t most;

// Numbered lines, and now and then one that is longer than a pipe.
static void *numbered(void *who) {
    char *text = malloc(most + 64);
    for (int n = 0; n < 150; n++) {
        int len = sprintf(text, "%ld: %d", (long)who, n);
        if (most && n % 10 == 3) {
            memset(text + len, 'a' + (long)who, most);
            len += most;
        }
        text[len++] = '\n';
        put(text, len);
    }
    return NULL;
}

// Processes that write to one pipe, each by itself or by threads.
static void order(const char *how) {
    int threads = strcmp(how, "threads") ? 0 : 3;
    most = strcmp(how, "lines") ? 70000 : 0;
    for (long who = 0; who < 4; who++) {
        if (fork()) continue;
        pthread_t all[3];
        for (long n = 0; n < threads; n++) pthread_create(&all[n], NULL, numbered, (void *)(who * 3 + n));
        for (int n = 0; n < threads; n++) pthread_join(all[n], NULL);
        if (!threads) numbered((void *)who);
        _exit(0);
    }
    int status;
    while (wait(&status) > 0)
        if (status) _exit(8);
}

static void killed_by_child(void) {
    pid_t parent = getpid();
    if (!fork()) {
        kill(parent, SIGKILL);
        _exit(0);
    }
    for (;;) pause();
}

// A process is killed while the child of its vfork runs; that one goes on, and so do others.
static void vfork_orphan(void) {
    int done[2], status;
    char byte;
    if (pipe(done)) _exit(9);
    if (!fork()) {
        pid_t parent = getpid();
        if (!vfork()) {
            kill(parent, SIGKILL);
            while (getppid() == parent) sched_yield();
            for (int n = 0; n < 100; n++) say(n);
            execl("/bin/sh", "sh", "-c", "echo over", NULL);
        }
        _exit(1);
    }
    close(done[1]);
    if (wait(&status) < 0 || WTERMSIG(status) != SIGKILL) _exit(8);
    for (int n = 0; n < 5; n++)
        if (!fork()) _exit(0);
    // The pipe ends with the orphan's program.
    if (read(done[0], &byte, 1) != 0) _exit(7);
    while (wait(NULL) > 0) {
    }
}

// A child with the same pid as its parent, if that is the first of a namespace; with another status.
static int namespace(void) {
    int status;
    if (getpid() != 1 || unshare(CLONE_NEWUSER | CLONE_NEWPID)) return 6;
    if (!fork()) _exit(getpid() == 1 ? 3 : 7);
    wait(&status);
    return WEXITSTATUS(status) == 3 ? 5 : 8;
}

// Something at each number that clew could have, then children.
static void descriptors(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int end = limit.rlim_cur < 3000 ? limit.rlim_cur : 3000;
    for (int fd = 3; fd < end; fd++)
        if (dup3(2, fd, O_CLOEXEC) != fd) _exit(9);
    for (int n = 0; n < 2; n++) {
        pid_t pid = n ? fork() : vfork();
        if (!pid) {
            execl("/bin/sh", "sh", "-c", "exit 7", NULL);
            _exit(1);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 7) _exit(8);
    }
}

// A child that has memory of its parent's, after the parent was told to go on.
static void forks_later(void) {
    volatile int *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char go;
    shared[0] = 1;
    printf("%d\n", getpid());
    if (read(0, &go, 1) != 1) _exit(9);
    pid_t pid = fork();
    if (!pid) {
        shared[0]++;
        shared[1024] = shared[0];
        _exit(shared[1024] + 3);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) _exit(8);
    printf("the child ended with %d\n", WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!strcmp(what, "count")) count();
    if (!strcmp(what, "threads")) threads();
    if (!strcmp(what, "much")) much();
    if (!strcmp(what, "little")) little();
    if (!strcmp(what, "escape")) escape(0);
    if (!strcmp(what, "forks")) escape('f');
    if (!strcmp(what, "clones")) escape('c');
    if (!strcmp(what, "order")) order(argv[2]);
    if (!strcmp(what, "kills_itself")) kill(getpid(), SIGKILL);
    if (!strcmp(what, "killed_by_group")) kill(0, SIGKILL);
    if (!strcmp(what, "killed_by_child")) killed_by_child();
    if (!strcmp(what, "vfork_orphan")) vfork_orphan();
    if (!strcmp(what, "namespace")) return namespace();
    if (!strcmp(what, "descriptors")) descriptors();
    if (!strcmp(what, "forks_later")) forks_later();
    if (!strcmp(what, "read")) puts("waiting"), read_for_ever();
    if (!strcmp(what, "pause")) puts("waiting"), pause();
    if (!strcmp(what, "lock")) puts("waiting"), pthread_mutex_lock(&first), pthread_mutex_lock(&first);
    if (!strcmp(what, "deadlock")) two_threads(), pthread_mutex_lock(&second);
    if (!strcmp(what, "thread_reads")) two_threads(), read_for_ever();
    return 0;
}
