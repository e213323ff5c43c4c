// Time calls through libc (vdso) and by system call agree, and time does not go back.
// variants: pie static musl musl-static
#include "guest.h"
#include <sys/time.h>
static long ns(struct timespec t) { return t.tv_sec * 1000000000L + t.tv_nsec; }
int main(void) {
    struct timespec before, middle, after;
    for (int i = 0; i < 20000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &before);
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &middle);
        clock_gettime(CLOCK_MONOTONIC, &after);
        CHECK(ns(before) <= ns(middle) && ns(middle) <= ns(after));
    }
    struct timeval tv;
    gettimeofday(&tv, NULL);
    clock_gettime(CLOCK_REALTIME, &after);
    long apart = after.tv_sec - tv.tv_sec;
    CHECK(apart >= 0 && apart < 100);
    time_t now = time(NULL);
    CHECK(now - after.tv_sec < 100 && now - after.tv_sec >= -1);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    CHECK(ns(before) > 0);
    CHECK(clock_gettime(9999, &before) == -1 && errno == EINVAL);
    clock_getres(CLOCK_MONOTONIC, &before);
    say("resolution %ld", ns(before));
    unsigned cpu, node;
    CHECK(syscall(SYS_getcpu, &cpu, &node, NULL) == 0);
    say("ok");
}
