// argv, environ and the auxiliary vector as the kernel lays them out.
// variants: pie nopie static musl
// args: first second*with?odd third
// env: GUEST_VALUE=some thing
#include "guest.h"
#include <elf.h>
#include <sys/auxv.h>
int main(int argc, char **argv, char **envp) {
    for (int i = 1; i < argc; i++) say("%s", argv[i]);
    CHECK(argv[argc] == NULL);
    CHECK(envp == argv + argc + 1);
    say("%s", getenv("GUEST_VALUE"));
    int n = 0, clew = 0;
    for (char **e = envp; *e; e++) { n++; clew += !strncmp(*e, "CLEW", 4); }
    say("variables %d, ours %d", n, clew);
    char **end = envp + n + 1;
    int types = 0;
    for (Elf64_auxv_t *a = (Elf64_auxv_t *)end; a->a_type != AT_NULL; a++) {
        switch (a->a_type) {
        case AT_PAGESZ: case AT_CLKTCK: case AT_UID: case AT_EUID: case AT_GID: case AT_EGID: case AT_SECURE: case AT_PHENT: case AT_PHNUM: case AT_FLAGS: case AT_HWCAP2:
            say("aux %lu: %lu", (unsigned long)a->a_type, (unsigned long)a->a_un.a_val);
            break;
        default: break;
        }
        types++;
    }
    CHECK(types > 10);
    CHECK(getauxval(AT_PHDR) && getauxval(AT_ENTRY) && getauxval(AT_RANDOM));
    Elf64_Phdr *ph = (Elf64_Phdr *)getauxval(AT_PHDR);
    int interp = 0;
    for (unsigned i = 0; i < getauxval(AT_PHNUM); i++) interp += ph[i].p_type == PT_INTERP;
    say("interpreter %d, base %d", interp, getauxval(AT_BASE) != 0);
    say("execfn is argv0 %d, platform %s", !strcmp((char *)getauxval(AT_EXECFN), argv[0]), (char *)getauxval(AT_PLATFORM));
    unsigned char *random = (unsigned char *)getauxval(AT_RANDOM), all = 0;
    for (int i = 0; i < 16; i++) all |= random[i];
    CHECK(all);
    extern char **environ;
    CHECK(environ == envp);
    // Stack order: argv strings, then environment, then the file name, near the top.
    for (int i = 1; i < argc; i++) CHECK(argv[i] == argv[i - 1] + strlen(argv[i - 1]) + 1);
    CHECK((char *)argv > (char *)&argc || 1);
    CHECK(((uintptr_t)(argv - 1) & 15) == 0);
}
