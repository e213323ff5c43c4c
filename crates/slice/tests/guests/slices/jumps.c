// Control that leaves by longjmp and comes by a signal; a function by its pointer.
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

volatile int result, flag, other;
static jmp_buf back;

static int twice(int n) { return n * 2; }     // in
static int thrice(int n) { return n * 3; }    // out

static void handler(int signo)
{
    flag = signo + 3;               // in
    other = 8;                      // out
}

__attribute__((noinline)) static void leave(int n)
{
    if (n > 1)                      // in
        longjmp(back, n + 4);       // in
}

int main(int argc, char **argv)
{
    int (*call)(int) = atoi(argv[1]) > 100 ? thrice : twice;   // in
    signal(SIGUSR1, handler);
    kill(getpid(), SIGUSR1);
    int got = setjmp(back);
    if (got == 0) {
        other = argc + 5;           // out
        leave(argc);                // in
        got = 77;                   // out
    }
    result = call(got) + flag;      // in
    return 0;                       // ask result
}
