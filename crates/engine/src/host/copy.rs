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
    // Others up to 16 bytes: both ends, which may overlap.
    "3:  jb 5f",
    "    cmp rdx, 16",
    "    ja 6f",
    "    cmp rdx, 8",
    "    jb 4f",
    "    mov rax, [rsi]",
    "    mov rcx, [rsi + rdx - 8]",
    "    mov [rdi], rax",
    "    mov [rdi + rdx - 8], rcx",
    "    xor eax, eax",
    "    ret",
    "4:  mov eax, [rsi]",
    "    mov ecx, [rsi + rdx - 4]",
    "    mov [rdi], eax",
    "    mov [rdi + rdx - 4], ecx",
    "    xor eax, eax",
    "    ret",
    "5:  cmp rdx, 1",
    "    jne 8f",
    "    mov al, [rsi]",
    "    mov [rdi], al",
    "    xor eax, eax",
    "    ret",
    "6:  cmp rdx, 256",
    "    ja 8f",
    "    lea rcx, [rsi + rdx - 16]",
    "    lea rdx, [rdi + rdx - 16]",
    "    movups xmm1, [rcx]",
    "7:  movups xmm0, [rsi]",
    "    movups [rdi], xmm0",
    "    add rsi, 16",
    "    add rdi, 16",
    "    cmp rdi, rdx",
    "    jb 7b",
    "    movups [rdx], xmm1",
    "    xor eax, eax",
    "    ret",
    "8:  mov rcx, rdx",
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
