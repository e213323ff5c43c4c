// Fills so many MiB and goes on changing pieces of them.
// variants: pie
// flags: -O1
// args: 32 3
#include "guest.h"
int round_number;

__attribute__((noinline)) static uint64_t pass(uint64_t *memory, size_t words, uint64_t seed) {
    uint64_t sum = 0;
    for (size_t i = 0; i < words; i += 512) {
        memory[i] = memory[i] * 31 + seed + i;  // MARK: touch
        sum += memory[i];
    }
    return sum;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    size_t size = (size_t)atol(argv[1]) << 20;
    int rounds = atoi(argv[2]);
    uint64_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    uint64_t sum = 0;
    for (round_number = 0; round_number < rounds; round_number++)
        sum += pass(memory, size / 8, round_number);
    say("%lx", sum);
    return 0;
}
