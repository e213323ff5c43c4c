// Time calls through libc (vdso) and by system call agree, and time does not go back; the vdso's own tables.
// variants: pie static musl musl-static
#include "guest.h"
#include <elf.h>
#include <sys/auxv.h>
#include <sys/time.h>
static long ns(struct timespec t) { return t.tv_sec * 1000000000L + t.tv_nsec; }
// What tools that read the vdso look for: sections with names, dynamic symbols, unwinding.
static void check_tables(void) {
    const char *base = (const char *)getauxval(AT_SYSINFO_EHDR);
    CHECK(base);
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)base;
    CHECK(header->e_shoff && header->e_shnum > header->e_shstrndx && header->e_shentsize == sizeof(Elf64_Shdr));
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(base + header->e_shoff);
    const char *names = base + sections[header->e_shstrndx].sh_offset;
    int found = 0;
    for (int i = 1; i < header->e_shnum; i++) {
        const char *name = names + sections[i].sh_name;
        found |= strcmp(name, ".text") == 0 && sections[i].sh_flags == (SHF_ALLOC | SHF_EXECINSTR) ? 1 : 0;
        found |= strcmp(name, ".dynstr") == 0 && sections[i].sh_type == SHT_STRTAB ? 2 : 0;
        found |= strcmp(name, ".eh_frame") == 0 && sections[i].sh_size > 40 ? 4 : 0;
        if (strcmp(name, ".dynsym") != 0) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(base + sections[i].sh_offset);
        const char *strings = base + sections[sections[i].sh_link].sh_offset;
        for (size_t n = 1; n < sections[i].sh_size / sizeof *symbols; n++) {
            if (strcmp(strings + symbols[n].st_name, "__vdso_clock_gettime") != 0) continue;
            const Elf64_Shdr *in = &sections[symbols[n].st_shndx];
            CHECK(strcmp(names + in->sh_name, ".text") == 0);
            CHECK(symbols[n].st_value - in->sh_addr < in->sh_size);
            found |= 8;
        }
    }
    CHECK(found == 15);
    const Elf64_Phdr *segments = (const Elf64_Phdr *)(base + header->e_phoff);
    int unwinding = 0;
    for (int i = 0; i < header->e_phnum; i++) unwinding += segments[i].p_type == PT_GNU_EH_FRAME;
    CHECK(unwinding == 1);
}
int main(void) {
    check_tables();
    struct timespec before, middle, after;
    for (int i = 0; i < 20000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &before);
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &middle);
        clock_gettime(CLOCK_MONOTONIC, &after);
        CHECK(ns(before) <= ns(middle) && ns(middle) <= ns(after));
    }
    struct timeval tv;
    gettimeofday(&tv, NULL);
    clock_gettime(CLOCK_REALTIME, &after);
    long apart = after.tv_sec - tv.tv_sec;
    CHECK(apart >= 0 && apart < 100);
    time_t now = time(NULL);
    CHECK(now - after.tv_sec < 100 && now - after.tv_sec >= -1);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    CHECK(ns(before) > 0);
    CHECK(clock_gettime(9999, &before) == -1 && errno == EINVAL);
    clock_getres(CLOCK_MONOTONIC, &before);
    say("resolution %ld", ns(before));
    unsigned cpu, node;
    CHECK(syscall(SYS_getcpu, &cpu, &node, NULL) == 0);
    say("ok");
}
