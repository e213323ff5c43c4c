// A signal handler walks a list that the program is about to change: the length is right only before and after.
#include "bug.h"
#include <signal.h>
#include <sys/time.h>
struct item { struct item *next; };
static struct item *volatile head;
static volatile int length, wrong;
static void look(int sig) {
    (void)sig;
    int count = 0;
    for (struct item *item = head; item != NULL; item = item->next) count++;
    wrong |= count != length;
}
int main(void) {
    struct sigaction action = {.sa_handler = look};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 900}, {0, 900}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 40; i++) {
        struct item *item = malloc(sizeof *item);
        work(3000);
        item->next = head;
        head = item;
        length++;
    }
    assert(!wrong);
    return 0;
}
