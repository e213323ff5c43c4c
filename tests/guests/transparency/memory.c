// mmap hints, MAP_FIXED over own maps, partial munmap and mprotect, mremap, brk, mincore, limits.
// variants: pie nopie static
#include "guest.h"
#include <sys/resource.h>
int main(void) {
    char *a = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(a != MAP_FAILED);
    for (int i = 0; i < 16; i++) a[i * 4096] = (char)i;
    CHECK(munmap(a + 4 * 4096, 4 * 4096) == 0);
    // A hint at a free place is honoured.
    char *hint = mmap(a + 5 * 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("hint %d", hint == a + 5 * 4096);
    char *taken = mmap(a, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("taken hint moved %d, still there %d", taken != a, a[4096] == 1);
    say("noreplace %d", mmap(a, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    CHECK(mmap(a + 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == a + 4096);
    say("fixed replaced %d, neighbours %d %d", a[4096], a[0], a[2 * 4096]);
    say("unaligned %d", mmap(a + 5, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EINVAL);
    say("zero %d", mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    say("huge %d", mmap(NULL, 1ul << 48, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    say("protect hole %d", mprotect(a + 4 * 4096, 4 * 4096, PROT_READ) == -1 && errno == ENOMEM);
    say("null page %d", mmap((void *)4096, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != (void *)4096);
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    say("32bit %d", low != MAP_FAILED && (uintptr_t)low < 1ul << 31);
    char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(m, "moved along");
    m = mremap(m, 4096, 1 << 20, MREMAP_MAYMOVE);
    CHECK(m != MAP_FAILED);
    m[(1 << 20) - 1] = 1;
    say("%s", m);
    m = mremap(m, 1 << 20, 4096, 0);
    char *to = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mremap(m, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    say("%s", to);
    say("cannot grow %d", mremap(to, 4096, 1 << 20, 0) == MAP_FAILED && errno == ENOMEM);
    // brk
    char *start = sbrk(0);
    CHECK(sbrk(1 << 20) == start);
    start[(1 << 20) - 1] = 9;
    CHECK(sbrk(0) == start + (1 << 20));
    sbrk(-(1 << 20));
    say("brk shrinks %d", sbrk(0) == start);
    CHECK(sbrk(4096 * 3) == start);
    say("fresh pages are zero %d", start[4096 * 2] == 0);
    say("kernel's answer to nonsense %d", syscall(SYS_brk, 1) == (long)sbrk(0));
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_STACK, &limit) == 0);
    say("stack limit %ld", (long)limit.rlim_cur);
    int fd = open("data", O_RDWR | O_CREAT, 0600);
    CHECK(write(fd, "hello file", 10) == 10);
    char *f = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    f[0] = 'J';
    // Whether a change after this is seen isn't specified.
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    p[1] = 'u';
    char text[11] = {0};
    pread(fd, text, 10, 0);
    say("%s / %.10s", text, p);
    CHECK(msync(f, 4096, MS_SYNC) == 0);
    say("read-only descriptor %d", mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, open("/etc/passwd", O_RDONLY), 0) == MAP_FAILED && (errno == EACCES || errno == EPERM));
    unlink("data");
    unsigned char vec[2];
    say("mincore %d, of a hole %d", mincore(a, 4096, vec) == 0 && (vec[0] & 1), mincore(a + 4 * 4096, 4096, vec) == -1 && errno == ENOMEM);
    CHECK(madvise(a, 4096, MADV_DONTNEED) == 0);
    say("dontneed %d", a[0]);
    CHECK(mlock(a, 4096) == 0 && munlock(a, 4096) == 0);
    char *grow = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_STACK, -1, 0);
    CHECK(grow != MAP_FAILED);
    // A terabyte without reserve, touched in two places.
    char *vast = mmap(NULL, 1ul << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (vast != MAP_FAILED) vast[0] = vast[(1ul << 40) - 1] = 1;
    say("vast %d", vast != MAP_FAILED);
    munmap(vast, 1ul << 40);
    say("munmap of nothing %d", munmap(a + 4 * 4096, 4096));
}
