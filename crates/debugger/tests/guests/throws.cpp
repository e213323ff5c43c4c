// Exceptions that end steps: caught in the frame that steps, and further out.
#include <cstdio>
#include <stdexcept>

__attribute__((noinline)) void thrower(int n) {
    if (n > 0)
        throw std::runtime_error("no");
}

__attribute__((noinline)) int catches(int n) {
    int result = 1;
    try {
        thrower(n); // CALLS
        result = 2;
    } catch (const std::runtime_error &) { // CATCHES
        result = 3;
    }
    return result;
}

__attribute__((noinline)) int passes(int n) {
    int result = 5;
    thrower(n); // PASSES
    return result;
}

__attribute__((noinline)) int between(int n) {
    int result = passes(n);
    return result + 1;
}

int main() {
    int sum = catches(1);
    try {
        sum += between(1);
    } catch (const std::exception &) { // OUTER CATCH
        sum += 10;
    }
    printf("%d\n", sum);
    return 0;
}
