// A class without a copy constructor of its own.
// held: out
// kind: double-free
#include <cstdio>
#include <cstring>
class Buffer {
    char *data;
public:
    explicit Buffer(const char *text) : data(new char[std::strlen(text) + 1]) { std::strcpy(data, text); }
    ~Buffer() { delete[] data; } // CAUSE
    const char *text() const { return data; }
};
static void show(Buffer buffer) { std::puts(buffer.text()); }
int main() {
    Buffer buffer("some text of a buffer");
    show(buffer);
}
