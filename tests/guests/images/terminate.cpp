// An exception that nobody catches ends in abort.
// variants: pie static
// status: signal ABRT
#include <cstdio>
#include <stdexcept>
int main() {
    std::puts("about to throw");
    std::fflush(stdout);
    throw std::runtime_error("uncaught");
}
