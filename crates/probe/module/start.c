/* A module's own start: says that it is ready, runs one probe after the other, and what is to run at the end. */
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include "clew.h"

struct clew_hit __clew_hit __attribute__((aligned(64)));
extern void (*const __clew_entries[])(struct clew_hit *);
extern void (*const __clew_ends[])(void);

static inline long say(long what)
{
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(what) : "rcx", "r11", "memory");
    return answer;
}

/* What registers were when a function was entered, by the function and its frame: a frame is entered again only once its
   function has been left. */
struct entered {
    unsigned long function, frame, r[16];
};
static struct entered *entered;
static unsigned long room, used, skipped;

static struct entered *find(unsigned long function, unsigned long frame)
{
    unsigned long at = (frame >> 3) * 0x9e3779b97f4a7c15 ^ function * 0xc2b2ae3d27d4eb4f;
    for (at = (at >> 20) & (room - 1); entered[at].function; at = (at + 1) & (room - 1))
        if (entered[at].function == function && entered[at].frame == frame)
            break;
    return &entered[at];
}

void __clew_entered(unsigned long function)
{
    if (2 * used >= room) {
        struct entered *old = entered;
        unsigned long count = room;
        room = count ? 2 * count : 256;
        entered = calloc(room, sizeof *entered);
        if (!entered)
            abort();
        for (unsigned long n = 0; n < count; n++)
            if (old[n].function)
                *find(old[n].function, old[n].frame) = old[n];
        free(old);
    }
    unsigned long frame = __clew_hit.r[4] + 8;
    struct entered *to = find(function, frame);
    used += !to->function;
    to->function = function;
    to->frame = frame;
    for (int n = 0; n < 16; n++)
        to->r[n] = __clew_hit.r[n];
}

/* A register at a function's entry. Where that was before the stretch began, the probe isn't run. */
unsigned long __clew_at_entry(unsigned long function, unsigned long frame, int n)
{
    struct entered *at = room ? find(function, frame) : 0;
    if (!at || !at->function) {
        skipped++;
        for (;;)
            say(0x636c0002);
    }
    return at->r[n];
}

/* Locals that regions of one function share, by the function's call: its frame is another call's only once it was left. */
struct locals {
    unsigned long group, function, frame;
    void *memory;
};
static struct locals *locals;
static unsigned long locals_room, locals_used;
void *__clew_instance;

static struct locals *find_locals(unsigned long group, unsigned long function, unsigned long frame)
{
    unsigned long at = (frame >> 3) * 0x9e3779b97f4a7c15 ^ (function + group) * 0xc2b2ae3d27d4eb4f;
    for (at = (at >> 20) & (locals_room - 1); locals[at].function; at = (at + 1) & (locals_room - 1))
        if (locals[at].group == group && locals[at].function == function && locals[at].frame == frame)
            break;
    return &locals[at];
}

/* Where the address of a call's locals is kept. */
void **__clew_locals(unsigned long group, unsigned long function, unsigned long frame)
{
    if (2 * locals_used >= locals_room) {
        struct locals *old = locals;
        unsigned long count = locals_room;
        locals_room = count ? 2 * count : 256;
        locals = calloc(locals_room, sizeof *locals);
        if (!locals)
            abort();
        for (unsigned long n = 0; n < count; n++)
            if (old[n].function)
                *find_locals(old[n].group, old[n].function, old[n].frame) = old[n];
        free(old);
    }
    struct locals *at = find_locals(group, function, frame);
    if (!at->function) {
        locals_used++;
        at->group = group;
        at->function = function;
        at->frame = frame;
    }
    return &at->memory;
}

void __clew_enter(long probe)
{
    __clew_entries[probe](&__clew_hit);
    /* Each probe's output belongs to its own place. */
    if (__fpending(stdout))
        fflush(stdout);
    for (;;)
        say(0x636c0002);
}

int main(void)
{
    say(0x636c0001);
    for (int n = 0; __clew_ends[n]; n++)
        __clew_ends[n]();
    if (skipped)
        fprintf(stderr, "%lu times debug code wasn't run: its function was entered before the stretch began\n", skipped);
    return 0;
}
