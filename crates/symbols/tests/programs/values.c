/* Values of all kinds, for expressions to look at. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <stdint.h>

enum color { RED, GREEN = 5, BLUE };
enum flags { A = 1, B = 2, C = 4 };

struct bits {
    unsigned a : 3;
    int b : 5;
    unsigned long c : 40;
};

struct node {
    int value;
    struct node *next;
    struct {
        short x, y;
    };
    union {
        int i;
        float f;
    } u;
    char name[16];
    struct bits bits;
};

typedef struct node node_t;
typedef unsigned long word;
typedef int (*operation)(int, int);

/* Known to the linker only. */
__asm__(".globl bare\n.type bare, @function\nbare: xor %eax, %eax\nret\n.size bare, . - bare");

int add(int a, int b) { return a + b; }

int counter = 42;
static long hidden = -7;
unsigned char byte = 200;
char letter = 'x';
signed char negative = -1;
_Bool yes = true;
float single = 1.5f;
double real = 0.1;
long double wide = 2.25L;
int numbers[5] = {1, 2, 3, 4, 5};
int zeros[100];
int grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
const char *greeting = "hello\n\"world\"";
char buffer[32] = "abc";
char full[4] = {'a', 'b', 'c', 'd'};
enum color paint = BLUE;
enum color odd = 17;
enum flags both = A | C;
node_t head = {1, NULL, {3, 4}, {.f = 1.0f}, "first", {5, -3, 1234567}};
struct node tail = {2, &head, {-1, -2}, {7}, "second", {1, 2, 3}};
operation op = add;
void *nothing;
int *where = &counter;
word big = 0xffffffffffffffffUL;
uint8_t raw[4] = {1, 2, 0xff, 0};
uint64_t values64[3] = {1, 1UL << 40, 0};
volatile int touched = 3;
__thread int mine = 11;
const int limit = 1000;
struct node *list;
char *strings[3] = {"one", "two", 0};
extern struct opaque *unknown;
struct opaque *unknown;

static int square(int n)
{
    static int calls;
    int result = n * n;
    calls++;
    printf("%d\n", result); /* STOP */
    return result + calls;
}

int main(int argc, char **argv)
{
    node_t local = {9, &tail, {1, 1}, {0}, "local", {0, 0, 0}};
    int total = 0;
    mine = 12;
    list = &local;
    for (int i = 0; i < 3; i++) {
        int counter = i * 100;
        total += counter;
    }
    hidden--;
    return square(total + argc) + (int)hidden + list->value + (argv == 0);
}
