// MXCSR: rounding modes, denormals, sticky flags, kept per thread and across calls.
// flags: -lm -frounding-math
#include "guest.h"
#include <fenv.h>
#include <math.h>
#include <xmmintrin.h>
static volatile double one = 1, ten = 10, tiny = 1e-310;
static void *in_thread(void *unused) {
    (void)unused;
    say("thread inherits %x", _mm_getcsr() & 0x6000);
    _mm_setcsr(0x1f80);
    return NULL;
}
int main(void) {
    int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    for (int i = 0; i < 4; i++) {
        fesetround(modes[i]);
        say("%d: %a %a %ld %ld %.3f", i, one / ten, -one / ten, lrint(2.5), lrint(-2.5), 0.0625);
        pthread_t t;
        CHECK(!pthread_create(&t, NULL, in_thread, NULL));
        pthread_join(t, NULL);
        CHECK(fegetround() == modes[i]);
        getppid();
        CHECK(fegetround() == modes[i]);
    }
    fesetround(FE_TONEAREST);
    _mm_setcsr(0x1f80);
    volatile double d = one / ten;
    say("sticky %x", _mm_getcsr() & 0x3f);
    d = tiny * 0.5;
    say("sticky %x", _mm_getcsr() & 0x3f);
    d = one / 0.0 + d;
    say("sticky %x", _mm_getcsr() & 0x3f);
    _mm_setcsr(0x1f80 | 0x8040); // flush to zero, denormals are zero
    say("ftz %d", tiny * 0.5 == 0);
    d = tiny + 0;
    say("daz %d", d == 0);
    _mm_setcsr(0x1f80);
    feclearexcept(FE_ALL_EXCEPT);
    d = sqrt(-one);
    say("invalid %d %d", fetestexcept(FE_INVALID) != 0, isnan(d));
}
