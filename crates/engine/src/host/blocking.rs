//! System calls that may wait, made so that no signal is lost or late.
//!
//! "Look whether a signal came, then wait" has a window between the two. One routine makes all
//! such calls; a handler that interrupts it anywhere from the check to the `syscall` instruction
//! itself moves it to the abort label. That covers both a signal that came before the call was
//! made, and a call that the kernel interrupted and wants made again (SA_RESTART: it puts rip
//! back onto the `syscall` instruction). In both cases nothing has happened, and the caller
//! delivers the signal first and makes the call again afterwards. A call that must not be
//! restarted returns EINTR by the kernel's own rules.

use std::arch::global_asm;
use std::mem::offset_of;

use crate::context::GsBlock;
use crate::host::kernel_thread::KernelThread;

global_asm!(
    ".pushsection .text.clew_blocking, \"ax\", @progbits",
    ".globl clew_blocking_call",
    "clew_blocking_call:",
    "    mov rax, rdi",
    "    mov r11, rsi",
    "    mov rdi, [r11]",
    "    mov rsi, [r11 + 8]",
    "    mov rdx, [r11 + 16]",
    "    mov r10, [r11 + 24]",
    "    mov r8, [r11 + 32]",
    "    mov r9, [r11 + 40]",
    ".globl clew_blocking_check",
    "clew_blocking_check:",
    "    cmp dword ptr gs:[{signalled}], 0",
    "    jne clew_blocking_abort",
    ".globl clew_blocking_syscall",
    "clew_blocking_syscall:",
    "    syscall",
    ".globl clew_blocking_done",
    "clew_blocking_done:",
    "    xor edx, edx",
    "    ret",
    ".globl clew_blocking_abort",
    "clew_blocking_abort:",
    "    mov rax, -4",
    "    mov edx, 1",
    "    ret",
    ".popsection",
    signalled = const offset_of!(GsBlock, host) + offset_of!(KernelThread, signalled),
);

/// The end of an interruptible call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub value: i64,
    /// Nonzero if the call has not been made, or was undone, because of a signal.
    pub aborted: u64,
}

unsafe extern "C" {
    fn clew_blocking_call(nr: i64, args: *const u64) -> Ended;
    fn clew_blocking_check();
    fn clew_blocking_syscall();
    fn clew_blocking_done();
    fn clew_blocking_abort();
}

/// Makes a call that a signal may abort. gs must point to a block with a [`KernelThread`] header.
///
/// # Safety
/// As for [`crate::sys::call`].
pub unsafe fn call(nr: i64, args: [u64; 6]) -> Ended {
    // SAFETY: the caller vouches for the call; the routine keeps the C calling convention.
    unsafe { clew_blocking_call(nr, args.as_ptr()) }
}

/// For handlers: where an interrupted context goes on, as new (rip, rax).
pub fn interrupted(rip: u64, rax: u64) -> Option<(u64, u64)> {
    let address = |f: unsafe extern "C" fn()| f as usize as u64;
    let syscall = address(clew_blocking_syscall);
    if rip < address(clew_blocking_check) || rip > syscall {
        return None;
    }
    // A timed call that a stop interrupted waits for its second part; only the kernel knows how
    // much time is left, so it can't be made again from the start.
    if rip == syscall && rax == libc::SYS_restart_syscall as u64 {
        return Some((
            address(clew_blocking_done),
            crate::sys::err(libc::EINTR) as u64,
        ));
    }
    Some((address(clew_blocking_abort), rax))
}
