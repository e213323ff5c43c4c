//! `memcpy` and its kin for the whole executable, in the place of the C library's.
//!
//! In: C's contracts. Events are many and small, and musl's versions begin with a string
//! instruction (or go byte by byte), which for a few dozen bytes takes longer than the event itself.

use std::arch::global_asm;

/// From here on string instructions are at least as fast.
const LONG: usize = 1024;

global_asm!(
    ".pushsection .text.clew_bytes, \"ax\", @progbits",
    ".globl memmove",
    "memmove:", // rdi: to, rsi: from, rdx: length
    "    mov rcx, rdi",
    "    sub rcx, rsi",
    "    cmp rcx, rdx",
    // Forwards unless the destination begins within the source.
    "    jae memcpy",
    "    cmp rdx, 32",
    "    jbe memcpy",
    "    mov rax, rdi",
    "    movups xmm2, [rsi]",
    "    movups xmm3, [rsi + 16]",
    "2:  movups xmm0, [rsi + rdx - 16]",
    "    movups xmm1, [rsi + rdx - 32]",
    "    movups [rdi + rdx - 16], xmm0",
    "    movups [rdi + rdx - 32], xmm1",
    "    sub rdx, 32",
    "    cmp rdx, 32",
    "    ja 2b",
    "    movups [rax], xmm2",
    "    movups [rax + 16], xmm3",
    "    ret",
    ".p2align 4",
    ".globl memcpy",
    "memcpy:", // rdi: to, rsi: from, rdx: length; short ones are loaded whole before they are stored
    "    mov rax, rdi",
    "    cmp rdx, 16",
    "    jb 5f",
    "    movups xmm2, [rsi + rdx - 16]",
    "    cmp rdx, 32",
    "    ja 2f",
    "    movups xmm0, [rsi]",
    "    movups [rdi], xmm0",
    "    movups [rax + rdx - 16], xmm2",
    "    ret",
    "2:  cmp rdx, {long}",
    "    jae 4f",
    "    movups xmm3, [rsi + rdx - 32]",
    "    lea rcx, [rdi + rdx - 32]",
    "3:  movups xmm0, [rsi]",
    "    movups xmm1, [rsi + 16]",
    "    movups [rdi], xmm0",
    "    movups [rdi + 16], xmm1",
    "    add rsi, 32",
    "    add rdi, 32",
    "    cmp rdi, rcx",
    "    jb 3b",
    "    movups [rcx], xmm3",
    "    movups [rcx + 16], xmm2",
    "    ret",
    "4:  mov rcx, rdx",
    "    shr rcx, 3",
    "    rep movsq",
    "    movups [rax + rdx - 16], xmm2",
    "    ret",
    "5:  cmp rdx, 8",
    "    jb 6f",
    "    mov rcx, [rsi]",
    "    mov r8, [rsi + rdx - 8]",
    "    mov [rdi], rcx",
    "    mov [rdi + rdx - 8], r8",
    "    ret",
    "6:  cmp rdx, 4",
    "    jb 7f",
    "    mov ecx, [rsi]",
    "    mov r8d, [rsi + rdx - 4]",
    "    mov [rdi], ecx",
    "    mov [rdi + rdx - 4], r8d",
    "    ret",
    "7:  test rdx, rdx",
    "    jz 8f",
    "    movzx ecx, byte ptr [rsi]",
    "    movzx r8d, byte ptr [rsi + rdx - 1]",
    "    mov r9, rdx",
    "    shr r9, 1",
    "    movzx r10d, byte ptr [rsi + r9]",
    "    mov [rdi], cl",
    "    mov [rdi + r9], r10b",
    "    mov [rdi + rdx - 1], r8b",
    "8:  ret",
    ".p2align 4",
    ".globl memset",
    "memset:", // rdi: to, sil: value, rdx: length
    "    mov rax, rdi",
    "    movzx ecx, sil",
    "    mov r8, 0x0101010101010101",
    "    imul rcx, r8",
    "    cmp rdx, 16",
    "    jb 5f",
    "    movq xmm0, rcx",
    "    punpcklqdq xmm0, xmm0",
    "    cmp rdx, {long}",
    "    jae 4f",
    "    lea r8, [rdi + rdx - 16]",
    "3:  movups [rdi], xmm0",
    "    add rdi, 16",
    "    cmp rdi, r8",
    "    jb 3b",
    "    movups [r8], xmm0",
    "    ret",
    "4:  mov r8, rax",
    "    mov rax, rcx",
    "    mov rcx, rdx",
    "    shr rcx, 3",
    "    rep stosq",
    "    movups [r8 + rdx - 16], xmm0",
    "    mov rax, r8",
    "    ret",
    "5:  cmp rdx, 8",
    "    jb 6f",
    "    mov [rdi], rcx",
    "    mov [rdi + rdx - 8], rcx",
    "    ret",
    "6:  cmp rdx, 4",
    "    jb 7f",
    "    mov [rdi], ecx",
    "    mov [rdi + rdx - 4], ecx",
    "    ret",
    "7:  test rdx, rdx",
    "    jz 8f",
    "    mov [rdi], cl",
    "    mov [rdi + rdx - 1], cl",
    "    shr rdx, 1",
    "    mov [rdi + rdx], cl",
    "8:  ret",
    ".p2align 4",
    ".globl memcmp",
    ".globl bcmp",
    "bcmp:",
    "memcmp:", // rdi, rsi: what, rdx: length
    "    xor ecx, ecx",
    "    sub rdx, 8",
    "    jb 4f",
    "2:  mov rax, [rdi + rcx]",
    "    mov r8, [rsi + rcx]",
    "    cmp rax, r8",
    "    jne 3f",
    "    add rcx, 8",
    "    cmp rcx, rdx",
    "    jbe 2b",
    "    jmp 4f",
    "3:  bswap rax",
    "    bswap r8",
    "    cmp rax, r8",
    "    sbb eax, eax",
    "    or eax, 1",
    "    ret",
    "4:  add rdx, 8",
    "5:  cmp rcx, rdx",
    "    jae 6f",
    "    movzx eax, byte ptr [rdi + rcx]",
    "    movzx r8d, byte ptr [rsi + rcx]",
    "    inc rcx",
    "    sub eax, r8d",
    "    jz 5b",
    "    ret",
    "6:  xor eax, eax",
    "    ret",
    ".popsection",
    long = const LONG,
);

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    unsafe extern "C" {
        fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
        fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
        fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8;
        fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32;
    }

    fn lengths() -> impl Iterator<Item = usize> {
        (0..300).chain([1000, 1023, 1024, 1025, 1031, 4097])
    }

    fn pattern() -> Vec<u8> {
        (0..6000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect()
    }

    /// What a byte-by-byte loop makes of it; written so that no library is called.
    fn moved(bytes: &[u8], from: usize, to: usize, len: usize) -> Vec<u8> {
        let piece: Vec<u8> = (0..len).map(|n| bytes[from + n]).collect();
        let inside = |n: usize| (to..to + len).contains(&n);
        (0..bytes.len())
            .map(|n| if inside(n) { piece[n - to] } else { bytes[n] })
            .collect()
    }

    fn same(a: &[u8], b: &[u8]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
    }

    #[test]
    fn copies_and_moves() {
        let bytes = pattern();
        for len in lengths() {
            for (from, to) in [(500, 503), (503, 500), (500, 500), (533, 500), (500, 533)] {
                let mut now = bytes.clone();
                let base = now.as_mut_ptr();
                // SAFETY: within the vector.
                let end = unsafe { memmove(base.add(to), base.add(from), len) };
                assert_eq!(end as usize, base as usize + to);
                assert!(same(&now, &moved(&bytes, from, to, len)), "{len}");
            }
            let mut other = vec![7u8; 6000];
            // SAFETY: two vectors with room for that.
            unsafe { memcpy(other.as_mut_ptr().add(3), bytes.as_ptr().add(5), len) };
            assert!(same(&other[3..3 + len], &bytes[5..5 + len]), "{len}");
            assert!(other[..3].iter().chain(&other[3 + len..]).all(|&b| b == 7));
        }
    }

    #[test]
    fn fills() {
        for len in lengths() {
            let mut bytes = vec![1u8; 6000];
            // SAFETY: within the vector.
            unsafe { memset(bytes.as_mut_ptr().add(9), 0xfa, len) };
            let right = |n: usize| {
                if (9..9 + len).contains(&n) { 0xfa } else { 1 }
            };
            assert!(
                bytes.iter().enumerate().all(|(n, &b)| b == right(n)),
                "{len}"
            );
        }
    }

    #[test]
    fn compares() {
        let bytes = pattern();
        for len in 0..100 {
            let a = bytes[..len].to_vec();
            let compare = |b: &[u8]| {
                // SAFETY: both are that long.
                unsafe { memcmp(a.as_ptr(), b.as_ptr(), len) }.cmp(&0)
            };
            assert_eq!(compare(&a), Ordering::Equal);
            for at in 0..len {
                let mut b = a.clone();
                b[at] = b[at].wrapping_add(100);
                // Only the first difference counts.
                if let Some(last) = b.get_mut(at + 1) {
                    *last = last.wrapping_sub(50);
                }
                assert_eq!(compare(&b), a[at].cmp(&b[at]), "{len} {at}");
            }
        }
    }
}
