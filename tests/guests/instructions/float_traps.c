// Unmasked floating-point exceptions, SSE and x87: SIGFPE with the right code at the right place.
// variants: pie static
#include "fault.h"
#define CASES(X) \
    X(sse_div, "movl $0x1d80, (%rsi); andl $~0x200, (%rsi); ldmxcsr (%rsi); cvtsi2sd %rcx, %xmm0; xorps %xmm1, %xmm1", "divsd %xmm1, %xmm0") \
    X(sse_invalid, "movl $0x1f00, (%rsi); ldmxcsr (%rsi); xorps %xmm1, %xmm1", "divsd %xmm1, %xmm1") \
    X(sse_inexact, "movl $0x0f80, (%rsi); ldmxcsr (%rsi); mov $3, %eax; cvtsi2sd %eax, %xmm1; mov $1, %eax; cvtsi2sd %eax, %xmm0", "divsd %xmm1, %xmm0") \
    X(x87_div, "fninit; movw $0x37b, (%rsi); fldcw (%rsi); fld1; fldz; fdivrp", "fwait") \
    X(x87_invalid, "fninit; movw $0x37e, (%rsi); fldcw (%rsi); fldz; fldz; fdivrp", "fld1")
#define DEFINE(name, before, at) CASE(name, before, at)
CASES(DEFINE)
static void reset(void) {
    unsigned standard = 0x1f80;
    __asm__ volatile("ldmxcsr %0; fnclex; fninit" : : "m"(standard));
}
int main(void) {
    fault_setup();
#define RUN(name, before, at) fault_registers(); reset(); REPORT(name); reset();
    CASES(RUN)
    say("done");
}
