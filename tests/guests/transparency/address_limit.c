// Under a limit on address space, allocation fails cleanly and the program goes on.
// variants: pie static
#include "guest.h"
#include <sys/resource.h>
int main(void) {
    struct rlimit limit = {1ul << 30, 1ul << 30};
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    void *p = mmap(NULL, 2ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("mmap refused %d", p == MAP_FAILED && errno == ENOMEM);
    say("malloc refused %d", malloc(2ul << 30) == NULL);
    say("small works %d", malloc(1000) != NULL);
}
