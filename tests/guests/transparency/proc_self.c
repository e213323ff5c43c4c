// /proc/self: exe, cmdline, comm, environ, maps, stat, status, auxv, root, cwd, as a native run shows them.
// variants: pie nopie static
// args: alpha beta
#include "guest.h"
#include <sys/prctl.h>
static char text[1 << 20];
static ssize_t slurp(const char *path) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t n = 0, r;
    while ((r = read(fd, text + n, sizeof text - 1 - n)) > 0) n += r;
    text[n] = 0;
    close(fd);
    return n;
}
// Finds the mapping that holds an address; its permissions and name.
static int mapping(const void *address, char *perms, char *name) {
    slurp("/proc/self/maps");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long from, to, offset, inode;
        char dev[16];
        *name = 0;
        if (sscanf(line, "%lx-%lx %4s %lx %15s %lu %4000[^\n]", &from, &to, perms, &offset, dev, &inode, name) < 6) continue;
        if ((unsigned long)address >= from && (unsigned long)address < to) return 1;
    }
    return 0;
}
static int global = 3;
int main(int argc, char **argv) {
    (void)argc;
    char exe[4096], perms[8], name[4096], real[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n] = 0;
    CHECK(realpath(argv[0], real));
    say("exe %d", !strcmp(exe, real));
    n = slurp("/proc/self/cmdline");
    char *p = text + strlen(text) + 1;
    say("cmdline %d %s %s total %d", !strcmp(text, argv[0]), p, p + strlen(p) + 1, n == (ssize_t)(strlen(argv[0]) + 1 + 6 + 5));
    slurp("/proc/self/comm");
    text[strcspn(text, "\n")] = 0;
    say("comm %s", text);
    prctl(PR_SET_NAME, "changed");
    slurp("/proc/self/comm");
    say("renamed %d", !strcmp(text, "changed\n"));
    slurp("/proc/self/stat");
    say("stat %d", strstr(text, "(changed)") != NULL);
    slurp("/proc/self/status");
    say("status %d, threads %s", strstr(text, "Name:\tchanged") != NULL, strstr(text, "Threads:\t1\n") ? "1" : "not 1");
    CHECK(mapping((void *)main, perms, name));
    say("code %s %d", perms, !strcmp(name, exe));
    CHECK(mapping(&global, perms, name));
    say("data %s %d", perms, !strcmp(name, exe));
    int local;
    CHECK(mapping(&local, perms, name));
    say("stack %s %s", perms, name);
    void *b = sbrk(8192);
    CHECK(mapping(b, perms, name));
    say("heap %s %s", perms, name);
    CHECK(mapping((void *)"literal", perms, name));
    say("constants %s %d", perms, !strcmp(name, exe));
    char *anonymous = mmap(NULL, 12288, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(anonymous + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (int i = 0; i < 3; i++) { CHECK(mapping(anonymous + i * 4096, perms, name)); say("anonymous %s '%s'", perms, name); }
    munmap(anonymous + 4096, 4096);
    say("hole %d", mapping(anonymous + 4096, perms, name));
    int fd = open(argv[0], O_RDONLY);
    void *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096);
    CHECK(mapping(shared, perms, name));
    say("file %s %d", perms, !strcmp(name, exe));
    slurp("/proc/self/maps");
    say("vdso %d, libc %d, other programs %d", strstr(text, "[vdso]") != NULL, strstr(text, "libc.so") != NULL, strstr(text, "/clew\n") != NULL);
    n = slurp("/proc/self/environ");
    say("environ %d", strstr(text, "PATH=") != NULL || n > 0);
    CHECK(slurp("/proc/self/auxv") > 100);
    CHECK(slurp("/proc/self/smaps") > 100);
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/exe", getpid());
    n = readlink(link, name, sizeof name - 1);
    name[n] = 0;
    say("by pid %d", !strcmp(name, exe));
    n = readlink("/proc/thread-self/exe", name, sizeof name - 1);
    say("by thread %d", n > 0 && !strncmp(name, exe, n));
    fd = open("/proc/self/exe", O_RDONLY);
    CHECK(read(fd, text, 4) == 4);
    say("magic %d", !memcmp(text, "\177ELF", 4));
    fd = open("/proc/self/mem", O_RDONLY);
    CHECK(pread(fd, text, 4, (off_t)&global) == 4);
    say("mem %d", *(int *)text);
}
