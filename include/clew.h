/* What a program can say to clew, if it runs under it. One header, no library; without clew each of these is a system
 * call that the kernel refuses, and nothing else.
 *
 *   clew_mark("request 7");   names this place in a recording: mark:NAME, or mark:NAME#N for the Nth of a name,
 *                             wherever clew takes a moment (clew cut --from, clew seek in gdb)
 *   clew_running();           0 without clew, 1 under clew run, 2 while recording (and in a replay of that)
 */
#ifndef CLEW_H
#define CLEW_H

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#define CLEW_PRCTL 0x636c6577
#define CLEW_PRCTL_RUNNING 0
#define CLEW_PRCTL_MARK 1

#ifdef __cplusplus
extern "C" {
#endif

static inline int clew_running(void) {
    int before = errno;
    int answer = prctl(CLEW_PRCTL, (unsigned long)CLEW_PRCTL_RUNNING, 0ul, 0ul, 0ul);
    errno = before;
    return answer > 0 ? answer : 0;
}

/* Names longer than 200 bytes are cut. */
static inline void clew_mark(const char *name) {
    int before = errno;
    (void)prctl(CLEW_PRCTL, (unsigned long)CLEW_PRCTL_MARK, (unsigned long)name, (unsigned long)strlen(name), 0ul);
    errno = before;
}

#ifdef __cplusplus
}
#endif

#endif
