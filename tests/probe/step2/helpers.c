/* What the program's printer of numbers calls for each digit. */
#include <stdio.h>

void rdb_out_char(int c)
{
    putchar(c);
}
