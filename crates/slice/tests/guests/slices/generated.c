// Code that is made at run time has no lines and no graph: what it computes and decides counts all the same.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

volatile int result;
volatile int noise;

// if (edi > 3) return edi * 7; return edi + 1;
static const unsigned char code[] = {
    0x83, 0xff, 0x03, 0x7e, 0x04, 0x6b, 0xc7, 0x07, 0xc3, 0x8d, 0x47, 0x01, 0xc3,
};

int main(int argc, char **argv)
{
    int n = atoi(argv[1]);          // in
    int m = n + argc;               // in
    noise = m * 3;                  // out
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    result = ((int (*)(int))page)(m);   // in
    return 0;                       // ask result
}
