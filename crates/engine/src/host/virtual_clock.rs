//! Virtual time: a clock that goes by what the guest does. In: ticks, calls, questions and jumps. Out: what the guest's clocks
//! say.
//!
//! It begins at the same moment in every run and knows nothing of the machine's time, so that the same schedule sees the same
//! times. A question moves it on, too: a program that asks until some time is over must come to an end. Translated code calls
//! the functions below with the guest's fs and vector registers loaded, so they are written without either.

use std::arch::naked_asm;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::context::GsBlock;
use crate::layout::GS_BLOCK;

/// What a tick, a system call and a question take, in nanoseconds. About what they take on a machine.
pub const TICK: u64 = 4;
pub const CALL: u64 = 1_000;
const QUESTION: u64 = 500;
const SECOND: u64 = 1_000_000_000;

/// Where the clocks begin: since the start of the machine, and by the calendar (2033; no file is from the future then).
const MONOTONIC: u64 = 100_000 * SECOND;
const REAL: u64 = 2_000_000_000 * SECOND;

/// Nanoseconds since the program began. One kernel thread moves it, the executor.
static ELAPSED: AtomicU64 = AtomicU64::new(0);
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether the guest's time is virtual.
pub fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

pub fn elapsed() -> u64 {
    ELAPSED.load(Ordering::Relaxed)
}

pub fn advance(nanoseconds: u64) {
    ELAPSED.store(elapsed().saturating_add(nanoseconds), Ordering::Relaxed);
}

/// On to a time of the monotonic clock, if it isn't past.
pub fn jump(monotonic: u64) {
    let to = monotonic.saturating_sub(MONOTONIC);
    ELAPSED.store(elapsed().max(to), Ordering::Relaxed);
}

/// Nanoseconds on one of the guest's clocks; None if there is no such clock.
pub fn now(clock: libc::clockid_t) -> Option<u64> {
    let base = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => REAL,
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_BOOTTIME => MONOTONIC,
        // A thread's time is the program's: there is one processor.
        libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID => 0,
        other if other < 0 => 0,
        _ => return None,
    };
    Some(base + elapsed())
}

const TIME: usize = offset_of!(GsBlock, time);

/// rax: nanoseconds since the start, after this question.
#[unsafe(naked)]
extern "C" fn asked() {
    naked_asm!(
        "lea r8, [rip + {elapsed}]",
        "mov rax, [r8]",
        "add rax, {question}",
        "mov [r8], rax",
        "ret",
        elapsed = sym ELAPSED,
        question = const QUESTION,
    )
}

/// Writes rax nanoseconds as seconds and nanoseconds.
#[unsafe(naked)]
extern "C" fn answer() {
    naked_asm!(
        "xor edx, edx",
        "mov ecx, {second}",
        "div rcx",
        "mov [{base} + {time}], rax",
        "mov [{base} + {time} + 8], rdx",
        "ret",
        second = const SECOND,
        base = const GS_BLOCK,
        time = const TIME,
    )
}

#[unsafe(naked)]
extern "C" fn clock_gettime() {
    naked_asm!(
        "call {asked}",
        "mov r9, {real}",
        "test edi, edi",
        "je 3f",
        "cmp edi, {coarse}",
        "je 3f",
        "cmp edi, {tai}",
        "je 3f",
        "mov r9, {monotonic}",
        "cmp edi, {first}",
        "je 3f",
        "cmp edi, {raw}",
        "je 3f",
        "cmp edi, {monotonic_coarse}",
        "je 3f",
        "cmp edi, {boot}",
        "je 3f",
        // Processors' clocks: 2, 3 and negative ones.
        "xor r9d, r9d",
        "cmp edi, 3",
        "jle 3f",
        "mov eax, {invalid}",
        "ret",
        "3:",
        "add rax, r9",
        "call {answer}",
        "xor eax, eax",
        "ret",
        asked = sym asked,
        answer = sym answer,
        real = const REAL,
        monotonic = const MONOTONIC,
        coarse = const libc::CLOCK_REALTIME_COARSE,
        tai = const libc::CLOCK_TAI,
        first = const libc::CLOCK_MONOTONIC,
        raw = const libc::CLOCK_MONOTONIC_RAW,
        monotonic_coarse = const libc::CLOCK_MONOTONIC_COARSE,
        boot = const libc::CLOCK_BOOTTIME,
        invalid = const -libc::EINVAL,
    )
}

#[unsafe(naked)]
extern "C" fn gettimeofday() {
    naked_asm!(
        "call {asked}",
        "mov r9, {real}",
        "add rax, r9",
        "call {answer}",
        "mov rax, rdx",
        "xor edx, edx",
        "mov ecx, 1000",
        "div rcx",
        "mov [{base} + {time} + 8], rax",
        "xor eax, eax",
        "ret",
        asked = sym asked,
        answer = sym answer,
        real = const REAL,
        base = const GS_BLOCK,
        time = const TIME,
    )
}

#[unsafe(naked)]
extern "C" fn time() {
    naked_asm!(
        "call {asked}",
        "mov r9, {real}",
        "add rax, r9",
        "call {answer}",
        "ret",
        asked = sym asked,
        answer = sym answer,
        real = const REAL,
    )
}

/// From now on the guest's fast time calls ask this clock.
pub fn install(gs: &mut GsBlock) {
    ACTIVE.store(true, Ordering::Relaxed);
    gs.vdso = [
        clock_gettime as *const () as u64,
        gettimeofday as *const () as u64,
        time as *const () as u64,
        0,
    ];
}
