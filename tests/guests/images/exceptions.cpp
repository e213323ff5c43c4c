// C++ exceptions: through many frames, rethrown, across threads, with destructors in order.
// variants: pie debug nopie static static-pie
#include "guest.h"
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
struct Trace {
    int n;
    ~Trace() { if (n % 100 == 0) printf("~%d\n", n); }
};
static int deep(int n) {
    Trace trace{n};
    if (n == 0) throw std::runtime_error("bottom");
    return deep(n - 1) + 1;
}
static void rethrow() {
    try { deep(300); } catch (const std::exception &e) {
        printf("passing on %s\n", e.what());
        throw;
    }
}
struct Base { virtual ~Base() {} virtual const char *name() { return "base"; } };
struct Derived : Base { const char *name() override { return "derived"; } };
int main() {
    try { rethrow(); } catch (const std::runtime_error &e) { printf("caught %s\n", e.what()); }
    try { throw 42; } catch (long) { puts("wrong"); } catch (int i) { printf("int %d\n", i); }
    try { throw Derived(); } catch (Base &b) { printf("%s\n", b.name()); }
    Base base;
    try { (void)dynamic_cast<Derived &>(base); } catch (std::bad_cast &) { puts("bad cast"); }
    try { std::vector<int>(3).at(5); } catch (std::out_of_range &) { puts("out of range"); }
    std::exception_ptr kept;
    std::thread([&] { try { throw std::string("from a thread"); } catch (...) { kept = std::current_exception(); } }).join();
    try { std::rethrow_exception(kept); } catch (std::string &s) { puts(s.c_str()); }
    long sum = 0;
    for (int i = 0; i < 20000; i++) try { throw i; } catch (int n) { sum += n; }
    printf("%ld\n", sum);
}
