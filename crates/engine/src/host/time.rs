//! The functions behind the guest's fast time calls: the host's vdso, or the kernel without one.
//!
//! While recording, each answer is also put into a buffer, which the recorder empties before the next
//! event; in replay they come from it. Both are called from translated code with the guest's fs and
//! vector registers loaded, so they are written without either.

use std::arch::naked_asm;
use std::mem::offset_of;

use crate::context::{GsBlock, Values};
use crate::layout::GS_BLOCK;
use crate::syscall;
use crate::vdso;

extern "C" fn clock_gettime(clock: u64, time: u64) -> i64 {
    // SAFETY: the caller passes a valid pointer (`translate::time`).
    unsafe { syscall!(libc::SYS_clock_gettime, clock, time) }
}

extern "C" fn gettimeofday(time: u64, zone: u64) -> i64 {
    // SAFETY: as above.
    unsafe { syscall!(libc::SYS_gettimeofday, time, zone) }
}

extern "C" fn time(time: u64) -> i64 {
    // SAFETY: as above.
    unsafe { syscall!(libc::SYS_time, time) }
}

/// Fills in `gs.vdso` and what else the fast path needs.
pub fn install(gs: &mut GsBlock) {
    // SAFETY: getauxval only reads; the kernel's value is the address of its vdso or 0.
    let found = unsafe { vdso::host_functions(libc::getauxval(libc::AT_SYSINFO_EHDR)) };
    let fallback = [
        clock_gettime as *const () as u64,
        gettimeofday as *const () as u64,
        time as *const () as u64,
        0,
    ];
    for ((slot, found), fallback) in gs.vdso.iter_mut().zip(found).zip(fallback) {
        *slot = if found != 0 { found } else { fallback };
    }
}

/// How many answers the buffer holds; from half of it on the guest leaves the cache at its next tick.
pub const BUFFER: usize = 2048;
pub const HALF: usize = BUFFER / 2;

const USED: usize = offset_of!(GsBlock, values) + offset_of!(Values, used);
const THERE: usize = offset_of!(GsBlock, values) + offset_of!(Values, there);
const MISSING: usize = offset_of!(GsBlock, values) + offset_of!(Values, missing);
const POINTER: usize = offset_of!(GsBlock, values) + offset_of!(Values, buffer);
const TIME: usize = offset_of!(GsBlock, time);
const HOST: usize = offset_of!(GsBlock, host_vdso);

/// Calls the host's function number `$n` and keeps its answer.
macro_rules! recording {
    ($name:ident, $n:literal) => {
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                "sub rsp, 8",
                "call qword ptr [{base} + {host} + 8 * {n}]",
                "add rsp, 8",
                "mov rcx, [{base} + {used}]",
                "lea rdx, [rcx + 2 * rcx]",
                "mov r8, [{base} + {pointer}]",
                "lea r8, [r8 + 8 * rdx]",
                "mov [r8], rax",
                "mov r9, [{base} + {time}]",
                "mov [r8 + 8], r9",
                "mov r9, [{base} + {time} + 8]",
                "mov [r8 + 16], r9",
                "inc rcx",
                "mov [{base} + {used}], rcx",
                "cmp rcx, {half}",
                "jb 2f",
                // Have them written down: one more tick, and the guest is out. A handler may kick at the
                // same time: what is taken away is exchanged and added in one instruction each.
                "mov ecx, 1",
                "xchg [{base} + {ticks}], rcx",
                "dec rcx",
                "add [{base} + {kicked}], rcx",
                "2:",
                "ret",
                base = const GS_BLOCK,
                host = const HOST,
                n = const $n,
                used = const USED,
                pointer = const POINTER,
                time = const TIME,
                half = const HALF,
                ticks = const offset_of!(GsBlock, ticks_left),
                kicked = const offset_of!(GsBlock, kicked),
            )
        }
    };
}
recording!(recorded_clock_gettime, 0);
recording!(recorded_gettimeofday, 1);
recording!(recorded_time, 2);

/// Gives the next answer of the buffer; if there is none, says so and leaves at the next tick.
#[unsafe(naked)]
extern "C" fn replayed() {
    naked_asm!(
        "mov rcx, [{base} + {used}]",
        "cmp rcx, [{base} + {there}]",
        "jae 2f",
        "lea rdx, [rcx + 2 * rcx]",
        "mov r8, [{base} + {pointer}]",
        "lea r8, [r8 + 8 * rdx]",
        "inc rcx",
        "mov [{base} + {used}], rcx",
        "mov rax, [r8]",
        "mov r9, [r8 + 8]",
        "mov [{base} + {time}], r9",
        "mov r9, [r8 + 16]",
        "mov [{base} + {time} + 8], r9",
        "ret",
        "2:",
        "mov qword ptr [{base} + {missing}], 1",
        "mov qword ptr [{base} + {ticks}], 1",
        "xor eax, eax",
        "ret",
        base = const GS_BLOCK,
        used = const USED,
        there = const THERE,
        missing = const MISSING,
        pointer = const POINTER,
        time = const TIME,
        ticks = const offset_of!(GsBlock, ticks_left),
    )
}

/// Where [`freeze`] puts what it is told.
const REAL: usize = 0;
const MONOTONIC: usize = 1;
const OF_DAY: usize = 2;
const SECONDS: usize = 3;

/// Gives the same answer every time: what is in the buffer at this place.
macro_rules! frozen {
    ($name:ident, $at:expr) => {
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                "mov r8, [{base} + {pointer}]",
                "mov rax, [r8 + 24 * {at}]",
                "mov r9, [r8 + 24 * {at} + 8]",
                "mov [{base} + {time}], r9",
                "mov r9, [r8 + 24 * {at} + 16]",
                "mov [{base} + {time} + 8], r9",
                "ret",
                base = const GS_BLOCK,
                pointer = const POINTER,
                time = const TIME,
                at = const $at,
            )
        }
    };
}
frozen!(frozen_real, REAL);
frozen!(frozen_monotonic, MONOTONIC);
frozen!(frozen_of_day, OF_DAY);
frozen!(frozen_seconds, SECONDS);

/// By the clock that is asked for: the calendar's, or another, and then it is the time since the start.
#[unsafe(naked)]
extern "C" fn frozen_clock() {
    naked_asm!(
        "test edi, edi",
        "je {real}",
        "cmp edi, {coarse}",
        "je {real}",
        "jmp {monotonic}",
        real = sym frozen_real,
        monotonic = sym frozen_monotonic,
        coarse = const libc::CLOCK_REALTIME_COARSE,
    )
}

/// From now on time calls are answered with this, in seconds and nanoseconds, until it is called again: by
/// the calendar's clock, and since the start.
pub fn freeze(gs: &mut GsBlock, real: [u64; 2], monotonic: [u64; 2]) {
    gs.vdso = [
        frozen_clock as *const () as u64,
        frozen_of_day as *const () as u64,
        frozen_seconds as *const () as u64,
        0,
    ];
    // SAFETY: made in `replay`, with room for more, and only translated code uses it besides.
    let buffer = unsafe { std::slice::from_raw_parts_mut(gs.values.buffer, BUFFER) };
    buffer[REAL] = [0, real[0], real[1]];
    buffer[MONOTONIC] = [0, monotonic[0], monotonic[1]];
    buffer[OF_DAY] = [0, real[0], real[1] / 1000];
    buffer[SECONDS] = [real[0], real[0], 0];
}

fn new_buffer(gs: &mut GsBlock) {
    gs.values.buffer = Box::leak(vec![[0u64; 3]; BUFFER].into_boxed_slice()).as_mut_ptr();
    gs.values.used = 0;
    gs.values.there = 0;
}

/// From now on answers are kept.
pub fn record(gs: &mut GsBlock) {
    new_buffer(gs);
    gs.host_vdso = gs.vdso;
    gs.vdso = [
        recorded_clock_gettime as *const () as u64,
        recorded_gettimeofday as *const () as u64,
        recorded_time as *const () as u64,
        0,
    ];
}

/// From now on answers aren't kept any more.
pub fn live(gs: &mut GsBlock) {
    gs.vdso = gs.host_vdso;
}

/// From now on answers come from the buffer.
pub fn replay(gs: &mut GsBlock) {
    new_buffer(gs);
    gs.vdso = [replayed as *const () as u64; 4];
}
