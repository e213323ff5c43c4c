/* calc 'for (i=0;i<3;i+1) i' */
#include "calc.h"
#include <stdio.h>

void put(int c)
{
    putchar(c);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int n = 1; n < argc; n++) {
        translate(argv[n]);
        execute();
    }
    return 0;
}
