// Preloaded: writes down every call of an allocator's function, for comparison with what clew sees.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t), *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static int (*real_memalign)(void **, size_t, size_t);
static char early[4096];
static size_t used;
static int fd = -1, starting;
// Some allocators call their own functions: of calls within calls the outermost counts.
static int inside;
static void start(void) {
    if (real_free || starting) return;
    starting = 1;
    real_malloc = dlsym(RTLD_NEXT, "malloc");
    real_calloc = dlsym(RTLD_NEXT, "calloc");
    real_realloc = dlsym(RTLD_NEXT, "realloc");
    real_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    fd = (int)syscall(SYS_open, getenv("HEAP_LOG"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    real_free = dlsym(RTLD_NEXT, "free");
    starting = 0;
}
static void put(char what, size_t size, void *block) {
    if (inside) return;
    char line[64];
    char *at = line + sizeof line;
    unsigned long numbers[2] = {(unsigned long)block, size};
    *--at = '\n';
    for (int n = 0; n < 2; n++) {
        do *--at = (char)('0' + numbers[n] % 10); while (numbers[n] /= 10);
        *--at = ' ';
    }
    *--at = what;
    if (syscall(SYS_write, fd, at, line + sizeof line - at) < 0) abort();
}
void *malloc(size_t size) {
    start();
    if (!real_free) {
        void *block = early + used;
        used += (size + 15) & ~15ul;
        return block;
    }
    inside++;
    void *block = real_malloc(size);
    inside--;
    if (block) put('+', size, block);
    return block;
}
void *calloc(size_t count, size_t size) {
    start();
    if (!real_free) return malloc(count * size);
    inside++;
    void *block = real_calloc(count, size);
    inside--;
    if (block) put('+', count * size, block);
    return block;
}
void free(void *block) {
    start();
    if ((char *)block >= early && (char *)block < early + sizeof early) return;
    if (block) put('-', 0, block);
    inside++;
    real_free(block);
    inside--;
}
void *realloc(void *old, size_t size) {
    start();
    inside++;
    void *block = real_realloc(old, size);
    inside--;
    if (old && (block || size == 0)) put('-', 0, old);
    if (block) put('+', size, block);
    return block;
}
int posix_memalign(void **block, size_t alignment, size_t size) {
    start();
    inside++;
    int failed = real_memalign(block, alignment, size);
    inside--;
    if (!failed) put('+', size, *block);
    return failed;
}
#ifndef __GLIBC__
// musl refuses to align if it seems that only malloc was replaced.
void *aligned_alloc(size_t alignment, size_t size) {
    void *(*real)(size_t, size_t) = dlsym(RTLD_NEXT, "aligned_alloc");
    start();
    inside++;
    void *block = real(alignment, size);
    inside--;
    if (block) put('+', size, block);
    return block;
}
#endif
