// A timer's signals into a plain loop of calls, with handlers that write no flags: what flags they find, dead or
// not, goes into r11 by the system call that ends them. The loop keeps what flags usually are in r11.
#include "guest.h"
#include <sys/time.h>

static volatile int hit;
unsigned long sum, others;

static void nothing(int sig) { (void)sig; }
static void store(int sig) { (void)sig; hit = 1; }
static void count(int sig) { (void)sig; hit++; }

// add: a leaf that is called 16 times in each of rsi rounds; r11 must stay rdi.
void rounds(unsigned long value, unsigned long times);
__asm__(".text\nadd: add %rax, sum(%rip)\nret\n"
        "rounds: mov %rdi, %r11\n"
        "1: mov %rsi, %rax\n"
        ".rept 16\n call add\n.endr\n"
        "cmp %rdi, %r11\nje 2f\nincq others(%rip)\nmov %rdi, %r11\n"
        "2: dec %rsi\njnz 1b\nret\n");

int main(void) {
    void (*handlers[])(int) = {nothing, store, count};
    static const unsigned long values[] = {0x202, 0x206, 0x246, 0x287, 0x293, 0x297, 0xa06};
    struct itimerval every = {{0, 300}, {0, 300}};
    signal(SIGALRM, nothing);
    setitimer(ITIMER_REAL, &every, 0);
    for (int kind = 0; kind < 3; kind++) {
        signal(SIGALRM, handlers[kind]);
        for (unsigned i = 0; i < sizeof values / sizeof *values; i++) rounds(values[i], 60000);
    }
    say("%lu, another r11 %lu times", sum, others);
    return 0;
}
