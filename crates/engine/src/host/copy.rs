//! Copies that survive a fault: the handler recognises an address inside the routine and makes
//! it return failure.

use std::arch::global_asm;

global_asm!(
    ".pushsection .text.clew_copy, \"ax\", @progbits",
    ".globl clew_copy",
    "clew_copy:", // rdi: to, rsi: from, rdx: length; 0 if done, 1 if a byte wasn't accessible
    "    cmp rdx, 8",
    "    jne 2f",
    "    mov rax, [rsi]",
    "    mov [rdi], rax",
    "    xor eax, eax",
    "    ret",
    "2:  cmp rdx, 4",
    "    jne 3f",
    "    mov eax, [rsi]",
    "    mov [rdi], eax",
    "    xor eax, eax",
    "    ret",
    "3:  mov rcx, rdx",
    "    rep movsb",
    "    xor eax, eax",
    "    ret",
    ".globl clew_copy_failed",
    "clew_copy_failed:",
    "    mov eax, 1",
    "    ret",
    ".popsection",
);

unsafe extern "C" {
    fn clew_copy(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn clew_copy_failed();
}

/// Copies `len` bytes; false if some address wasn't accessible (a part may have been copied).
///
/// # Safety
/// The engine's side of the copy must be valid, and the other side must not be engine memory.
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
    // SAFETY: the caller vouches for the ranges; a fault makes the routine return 1.
    unsafe { clew_copy(to, from, len) == 0 }
}

/// For the fault handler: where a fault at `rip` goes on, if it was in the copy.
pub fn failed(rip: u64) -> Option<u64> {
    let (start, end) = (
        clew_copy as *const () as u64,
        clew_copy_failed as *const () as u64,
    );
    (start..end).contains(&rip).then_some(end)
}
