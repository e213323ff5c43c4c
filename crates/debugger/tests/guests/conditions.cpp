// What conditions of breakpoints may be about: numbers of all sizes and signs, members, arrays, pointers,
// references, statics, threads' own variables.
#include <cstdint>
#include <cstdio>

enum Colour : std::uint8_t { red, green, blue = 200 };

struct Inner {
    std::int16_t low;
    std::uint16_t high;
};

struct Shape {
    std::int8_t tiny;
    std::uint8_t byte;
    std::int32_t number;
    std::uint32_t mask;
    std::int64_t wide;
    std::uint64_t huge;
    float real;
    unsigned three : 3;
    bool set;
    Colour colour;
    Inner inner;
    int list[4];
    Shape *next;
};

static int counter;
thread_local int mine;
static std::uint64_t state = 88172645463325252u;

static std::uint64_t random64() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

__attribute__((noinline)) static int look(Shape &shape, const Shape *other, unsigned char c, int n, unsigned u) {
    int before = n;
    counter++;
    mine = n * 2;
    asm volatile("" : "+r"(before) : "r"(other), "r"((int)c), "r"(u), "r"(&shape), "r"(n) : "memory"); // HERE
    return before + shape.byte + (other ? other->number : 0) + c + (int)u + n;
}

int main() {
    Shape shapes[2] = {};
    int sum = 0;
    for (int n = -20; n < 20; n++) {
        Shape &shape = shapes[n & 1];
        std::uint64_t bits = random64();
        shape.tiny = (std::int8_t)bits;
        shape.byte = (std::uint8_t)(bits >> 8);
        shape.number = (std::int32_t)(bits >> 16) % 8;
        shape.mask = (std::uint32_t)(bits >> 20);
        shape.wide = (std::int64_t)bits;
        shape.huge = random64();
        shape.real = n / 4.0f;
        shape.three = (unsigned)bits & 7;
        shape.set = bits & 16;
        shape.colour = bits & 32 ? red : bits & 64 ? green : blue;
        shape.inner = {(std::int16_t)bits, (std::uint16_t)(bits >> 3)};
        for (int k = 0; k < 4; k++)
            shape.list[k] = (int)(bits >> (k * 5)) & 15;
        shape.next = bits & 128 ? &shapes[1 - (n & 1)] : nullptr;
        sum += look(shape, n % 3 ? shape.next : &shape, (unsigned char)(bits >> 4), n, shape.mask);
    }
    std::printf("%d\n", sum);
}
