//! What the guest is shown of the CPU's answers, and of AT_HWCAP, which says the same.

use super::{Answer, XCR0, XSAVE_SIZE};

/// What the guest is told where the CPU itself says `real`.
pub fn shown(leaf: u32, subleaf: u32, real: Answer, portable: bool) -> Answer {
    let answer = carried(leaf, subleaf, real);
    if portable {
        common(leaf, subleaf, answer)
    } else {
        answer
    }
}

/// AT_HWCAP, which is leaf 1's edx as the kernel has it.
pub fn hwcap(real: u64, portable: bool) -> u64 {
    if portable {
        real & COMMON_1_EDX as u64
    } else {
        real
    }
}

/// AT_HWCAP2: FSGSBASE stays, waiting in user mode (ring 3 MWAIT) doesn't.
pub fn hwcap2(real: u64) -> u64 {
    real & 2
}

/// A mask with these bits clear.
const fn hide(bits: &[u32]) -> u32 {
    let mut mask = u32::MAX;
    let mut i = 0;
    while i < bits.len() {
        mask &= !(1 << bits[i]);
        i += 1;
    }
    mask
}

/// Takes out what the engine can't carry: state beyond AVX (AVX-512, AMX, MPX, protection keys,
/// shadow stacks, APX), transactions, user interrupts, enclaves, tracing, reading of performance
/// registers, pointer tagging.
fn carried(leaf: u32, subleaf: u32, real: Answer) -> Answer {
    let [eax, ebx, ecx, edx] = real;
    // SGX, HLE, RTM, MPX, AVX512 F DQ IFMA PF ER CD BW VL, processor trace.
    const LEAF7_EBX: u32 = hide(&[2, 4, 11, 14, 16, 17, 21, 25, 26, 27, 28, 30, 31]);
    // AVX512 VBMI, PKU, OSPKE, WAITPKG, VBMI2, CET_SS, VNNI, BITALG, VPOPCNTDQ, MAWAU (17-21),
    // key locker, ENQCMD, SGX_LC, PKS.
    const LEAF7_ECX: u32 = hide(&[
        1, 3, 4, 5, 6, 7, 11, 12, 14, 17, 18, 19, 20, 21, 23, 29, 30, 31,
    ]);
    // AVX512 4VNNIW 4FMAPS, UINTR, VP2INTERSECT, RTM_ALWAYS_ABORT, TSXLDTRK, PCONFIG, CET_IBT,
    // AMX_BF16, AVX512_FP16, AMX_TILE, AMX_INT8.
    const LEAF7_EDX: u32 = hide(&[2, 3, 5, 8, 11, 16, 18, 20, 22, 23, 24, 25]);
    // RAO-INT, AVX512_BF16, FRED, LKGS, WRMSRNS, AMX_FP16, HRESET, LAM, MSRLIST.
    const LEAF71_EAX: u32 = hide(&[3, 5, 17, 18, 19, 21, 22, 26, 27]);
    // AMX_COMPLEX, USER_MSR, CET_SSS, AVX10, APX.
    const LEAF71_EDX: u32 = hide(&[8, 15, 18, 19, 21]);
    // AMD: lightweight profiling (state of its own).
    const LEAF8_1_ECX: u32 = hide(&[15]);
    // AMD: RDPRU.
    const LEAF8_8_EBX: u32 = hide(&[4]);
    match (leaf, subleaf) {
        (7, 0) => [eax, ebx & LEAF7_EBX, ecx & LEAF7_ECX, edx & LEAF7_EDX],
        (7, 1) => [eax & LEAF71_EAX, ebx, ecx, edx & LEAF71_EDX],
        (0xd, 0) => [XCR0 as u32, XSAVE_SIZE, XSAVE_SIZE, 0],
        // XSAVEOPT, XSAVEC and XGETBV(1) stay; XSAVES is the kernel's, and what follows it too.
        (0xd, 1) => [eax & 7, XSAVE_SIZE, 0, 0],
        (0xd, 2) => real,
        // Other state; enclaves, tracing, key locker, PCONFIG, AMX, AVX10.
        (0xd | 0x12 | 0x14 | 0x19 | 0x1b | 0x1d | 0x1e | 0x24, _) => [0; 4],
        (0x8000_0001, _) => [eax, ebx, ecx & LEAF8_1_ECX, edx],
        (0x8000_0008, _) => [eax, ebx & LEAF8_8_EBX, ecx, edx],
        // The number of the processor that was asked.
        (1, _) => [eax, ebx & 0x00ff_ffff, ecx, edx],
        (0xb | 0x1f, _) => [eax, ebx, ecx, 0],
        (0x8000_001e, _) => [0, ebx & !0xff, ecx, edx],
        _ => real,
    }
}

/// A mask with these bits set.
const fn keep(bits: &[u32]) -> u32 {
    !hide(bits)
}

/// All of leaf 1's edx but what isn't everywhere: serial number, debug store, ACPI, self-snoop,
/// thermal monitor, pending break.
const COMMON_1_EDX: u32 = hide(&[10, 18, 20, 21, 22, 27, 29, 30, 31]);

/// Leaves what CPUs of the last ten years have, x86-64-v3: up to AVX2, FMA, BMI, F16C, LZCNT and MOVBE.
/// AES and PCLMULQDQ stay too, as every CPU with AVX2 has them, and FSGSBASE, which the engine
/// needs itself. What is listed in docs/limits.md goes: RDRAND, RDSEED, RDPID, ADX, SHA, GFNI, VAES,
/// VPCLMULQDQ, AVX-VNNI and other later vector extensions, CLFLUSHOPT, CLWB, CLDEMOTE, MOVDIRI,
/// MOVDIR64B, SERIALIZE, PTWRITE, XSAVEC and XSAVEOPT, hints that strings are fast (ERMS, FSRM), all of AMD's own
/// (3DNow!, XOP, FMA4, TBM, SSE4A, CLZERO, MWAITX).
fn common(leaf: u32, subleaf: u32, answer: Answer) -> Answer {
    let [eax, ebx, ecx, edx] = answer;
    // SSE3, PCLMULQDQ, SSSE3, FMA, CX16, SSE4.1, SSE4.2, MOVBE, POPCNT, AES, XSAVE, OSXSAVE, AVX,
    // F16C, in a virtual machine.
    const LEAF1_ECX: u32 = keep(&[0, 1, 9, 12, 13, 19, 20, 22, 23, 25, 26, 27, 28, 29, 31]);
    // FSGSBASE, BMI1, AVX2, BMI2.
    const LEAF7_EBX: u32 = keep(&[0, 3, 5, 8]);
    // LAHF, LZCNT.
    const LEAF8_1_ECX: u32 = keep(&[0, 5]);
    // SYSCALL, NX, large pages, RDTSCP, 64 bits. AMD repeats much of leaf 1 here.
    const LEAF8_1_EDX: u32 = keep(&[11, 20, 26, 27, 29]);
    match (leaf, subleaf) {
        (1, _) => [eax, ebx, ecx & LEAF1_ECX, edx & COMMON_1_EDX],
        (7, 0) => [0, ebx & LEAF7_EBX, 0, 0],
        (7, _) => [0; 4],
        (0xd, 1) => [0; 4],
        (0x8000_0001, _) => [eax, ebx, ecx & LEAF8_1_ECX, edx & LEAF8_1_EDX],
        (0x8000_0008, _) => [eax, 0, ecx, edx],
        // Virtualisation, instruction-based sampling, lightweight profiling, encryption; more
        // features; other vendors'.
        (0x8000_000a | 0x8000_001b | 0x8000_001c | 0x8000_001f..=0x8000_0025, _) => [0; 4],
        (0xc000_0000..=0xc000_ffff, _) => [0; 4],
        _ => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Answer = [u32::MAX; 4];

    #[test]
    fn wide_vectors_and_transactions_are_hidden() {
        let [_, ebx, ecx, edx] = shown(7, 0, ALL, false);
        for bit in [4, 11, 14, 16, 17, 21, 26, 27, 28, 30, 31] {
            assert_eq!(ebx >> bit & 1, 0, "ebx {bit}");
        }
        for bit in [3, 4, 7] {
            assert_eq!(ecx >> bit & 1, 0, "ecx {bit}");
        }
        for bit in [5, 20, 22, 24, 25] {
            assert_eq!(edx >> bit & 1, 0, "edx {bit}");
        }
        // FSGSBASE, BMI1, AVX2, BMI2, ERMS, ADX, SHA; GFNI, VAES, RDPID; FSRM, SERIALIZE stay.
        for bit in [0, 3, 5, 8, 9, 19, 29] {
            assert_eq!(ebx >> bit & 1, 1, "ebx {bit}");
        }
        assert_eq!(ecx >> 8 & 7, 7);
        assert_eq!(ecx >> 22 & 1, 1);
        assert_eq!(edx >> 4 & 1, 1);
        assert_eq!(edx >> 14 & 1, 1);
    }

    #[test]
    fn extended_state_is_avx_alone() {
        assert_eq!(shown(0xd, 0, ALL, false), [7, 832, 832, 0]);
        assert_eq!(shown(0xd, 1, ALL, false), [7, 832, 0, 0]);
        for subleaf in 3..64 {
            assert_eq!(shown(0xd, subleaf, ALL, false), [0; 4]);
        }
        for leaf in [0x14, 0x1d, 0x1e] {
            assert_eq!(shown(leaf, 0, ALL, false), [0; 4]);
        }
    }

    #[test]
    fn portable_is_x86_64_v3() {
        let ecx = shown(1, 0, ALL, true)[2];
        for bit in [0, 1, 9, 12, 13, 19, 20, 22, 23, 25, 26, 27, 28, 29] {
            assert_eq!(ecx >> bit & 1, 1, "leaf 1 ecx {bit}");
        }
        assert_eq!(ecx >> 30 & 1, 0, "rdrand");
        let [max, ebx, ecx, edx] = shown(7, 0, ALL, true);
        assert_eq!([max, ebx, ecx, edx], [0, 0x129, 0, 0]);
        let [_, _, ecx, edx] = shown(0x8000_0001, 0, ALL, true);
        assert_eq!(ecx, 0x21);
        assert_eq!(edx >> 30, 0, "3DNow!");
        assert_eq!(shown(0xd, 1, ALL, true), [0; 4]);
        assert_eq!(shown(0xd, 0, ALL, true), [7, 832, 832, 0]);
    }

    #[test]
    fn hwcap_says_what_leaf_1_says() {
        let edx = shown(1, 0, ALL, true)[3];
        assert_eq!(hwcap(u32::MAX as u64, true), edx as u64);
        assert_eq!(hwcap(u32::MAX as u64, false), u32::MAX as u64);
        assert_eq!(hwcap2(3), 2);
    }

    #[test]
    fn every_processor_is_the_first() {
        assert_eq!(shown(1, 0, ALL, false)[1], 0x00ff_ffff);
        assert_eq!(shown(0xb, 1, ALL, false)[3], 0);
        assert_eq!(shown(0x1f, 0, ALL, false)[3], 0);
    }
}
