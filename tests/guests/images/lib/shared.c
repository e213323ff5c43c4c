// The library that dlopen.c loads: counts calls and calls back.
#include <stdio.h>
int shared_counter = 40;
__attribute__((constructor)) static void loaded(void) { printf("library: loaded\n"); fflush(stdout); }
__attribute__((destructor)) static void unloaded(void) { printf("library: unloaded\n"); fflush(stdout); }
int shared_add(int n) { return shared_counter += n; }
int shared_call(int (*f)(int), int n) { return f(n) + 1; }
