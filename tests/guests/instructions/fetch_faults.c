// Fetch faults: an instruction that runs into a page that is gone, not executable, or past
// the end of its file, and code that loses its permission between two calls.
#include "fault.h"
static char *code_area;
static void put(char *at, const char *bytes, size_t n) { memcpy(at, bytes, n); }
static void run(const char *name, char *start, char *at) {
    fault_registers();
    fault_report(name, start, at, at + 1);
}
int main(void) {
    fault_setup();
    // RWX, then one page without access, one read-only data, and nothing.
    code_area = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(code_area, 0x90, 8 * PAGE);
    area = code_area;
    char *end = code_area + 2 * PAGE;
    CHECK(mprotect(end, PAGE, PROT_NONE) == 0);
    run("slide_none", end - 20, end);
    put(end - 3, "\x48\xb8\x01", 3); // movabs, cut after three bytes
    run("cut_none", end - 20, end - 3);
    CHECK(mprotect(end, PAGE, PROT_READ | PROT_WRITE) == 0);
    run("cut_data", end - 20, end - 3);
    CHECK(munmap(end, PAGE) == 0);
    run("cut_unmapped", end - 20, end - 3);
    // A branch that is decided against never fetches its target.
    char *page = code_area + 4 * PAGE;
    put(page, "\x31\xc0\x0f\x85", 4);                     // xor eax,eax; jnz far away
    int far = (int)(end - (page + 8));
    memcpy(page + 4, &far, 4);
    put(page + 8, "\xcc", 1);
    run("not_taken", page, page + 9);
    // Permission lost after the code has run.
    put(page, "\xcc\xc3", 2);
    run("first", page, page + 1);
    CHECK(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
    run("lost", page, page);
    CHECK(mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0);
    run("again", page, page + 1);
    CHECK(munmap(page, PAGE) == 0);
    run("gone", page, page);
    CHECK(mmap(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
    put(page, "\x0f\x0b", 2);
    run("replaced", page, page);
    // A mapped file that is shorter than its mapping.
    int fd = open("short", O_RDWR | O_CREAT, 0700);
    CHECK(ftruncate(fd, PAGE) == 0 && pwrite(fd, "\x90\x90\xcc", 3, 0) == 3);
    char *file = mmap(code_area + 6 * PAGE, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0);
    run("file", file, file + 3);
    run("past_end", file + PAGE, file + PAGE);
    fault_registers();
    unlink("short");
    say("done");
}
