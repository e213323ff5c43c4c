//! Copies and comparisons that survive a fault: the handler recognises an address inside the routines and makes
//! them return failure.

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
    ".globl clew_same",
    "clew_same:", // rdi and rsi: what is compared, rdx: length, in steps of 64; 0 if equal, 2 if not
    "    add rdx, rdi",
    "9:  movups xmm0, [rdi]",
    "    movups xmm1, [rdi + 16]",
    "    movups xmm2, [rdi + 32]",
    "    movups xmm3, [rdi + 48]",
    "    pcmpeqd xmm0, [rsi]",
    "    pcmpeqd xmm1, [rsi + 16]",
    "    pcmpeqd xmm2, [rsi + 32]",
    "    pcmpeqd xmm3, [rsi + 48]",
    "    pand xmm0, xmm1",
    "    pand xmm2, xmm3",
    "    pand xmm0, xmm2",
    "    pmovmskb eax, xmm0",
    "    xor eax, 0xffff",
    "    jnz 10f",
    "    add rdi, 64",
    "    add rsi, 64",
    "    cmp rdi, rdx",
    "    jb 9b",
    "    ret",
    "10: mov eax, 2",
    "    ret",
    ".globl clew_copy_failed",
    "clew_copy_failed:",
    "    mov eax, 1",
    "    ret",
    ".popsection",
);

unsafe extern "C" {
    fn clew_copy(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn clew_same(a: *const u8, b: *const u8, len: usize) -> u32;
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

/// Compares guest memory with the engine's, which is `ours` and aligned; `None` if some address wasn't accessible.
///
/// # Safety
/// `theirs` must not be engine memory.
pub unsafe fn same<const WORDS: usize>(theirs: *const u8, ours: &[u64; WORDS]) -> Option<bool> {
    let at = ours.as_ptr().cast::<u8>();
    assert!((at as usize).is_multiple_of(16) && WORDS.is_multiple_of(8) && WORDS != 0);
    // SAFETY: `ours` is as long as it says; a fault on the other side makes the routine return 1.
    match unsafe { clew_same(theirs, at, 8 * WORDS) } {
        0 => Some(true),
        1 => None,
        _ => Some(false),
    }
}

/// For the fault handler: where a fault at `rip` goes on, if it was in the copy.
pub fn failed(rip: u64) -> Option<u64> {
    let (start, end) = (
        clew_copy as *const () as u64,
        clew_copy_failed as *const () as u64,
    );
    (start..end).contains(&rip).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Aligned([u64; 512]);

    #[test]
    fn finds_any_difference() {
        let mut ours = Aligned([7; 512]);
        let theirs = [7u64; 512];
        let at = theirs.as_ptr().cast();
        // SAFETY: the test's own memory.
        let same = |ours: &Aligned| unsafe { same(at, &ours.0) };
        assert_eq!(same(&ours), Some(true));
        for n in 0..512 {
            ours.0[n] ^= 1 << (n % 64);
            assert_eq!(same(&ours), Some(false), "word {n}");
            ours.0[n] = 7;
        }
    }
}
