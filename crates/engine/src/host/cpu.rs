//! What the engine itself needs of the CPU and of the kernel's use of it: nothing in, what is missing out.
//!
//! Asked once, by the command: each `cpuid` costs 7 µs and more in a virtual machine, and programs that a guest
//! starts run on the same CPU.

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// What decides: words of `cpuid`, XCR0 and AT_HWCAP2.
#[derive(Clone, Copy)]
struct Answers {
    /// ecx of leaf 1.
    basic: u32,
    /// ebx of leaf 7.
    extended: u32,
    /// Register state that the kernel keeps; 0 without OSXSAVE.
    kept: u64,
    hwcap2: u64,
}

const XSAVE: u32 = 1 << 26;
const OSXSAVE: u32 = 1 << 27;
const AVX: u32 = 1 << 28;
const FSGSBASE: u32 = 1 << 0;
const BMI2: u32 = 1 << 8;
/// SSE and AVX registers, in XCR0.
const VECTORS: u64 = 6;
/// Programs may set FS and GS bases, in AT_HWCAP2.
const HWCAP2_FSGSBASE: u64 = 2;

/// Why the engine can't run here, in a sentence; None if it can.
pub fn problem() -> Option<String> {
    Answers::here().problem()
}

impl Answers {
    fn here() -> Answers {
        let basic = __cpuid(1).ecx;
        // CPUs without leaf 7 answer with another leaf's words, but they have no AVX either.
        let extended = __cpuid_count(7, 0).ebx;
        Answers {
            basic,
            extended,
            kept: if basic & OSXSAVE != 0 { xcr0() } else { 0 },
            // SAFETY: looks a number up.
            hwcap2: unsafe { libc::getauxval(libc::AT_HWCAP2) },
        }
    }

    fn problem(self) -> Option<String> {
        let has = |word: u32, bit: u32| word & bit != 0;
        let needed = [
            ("XSAVE", has(self.basic, XSAVE)),
            ("AVX", has(self.basic, AVX)),
            ("FSGSBASE", has(self.extended, FSGSBASE)),
            ("BMI2", has(self.extended, BMI2)),
        ];
        let missing: Vec<&str> = needed
            .iter()
            .filter(|(_, there)| !there)
            .map(|&(name, _)| name)
            .collect();
        if !missing.is_empty() {
            return Some(format!(
                "this CPU hasn't got {}, which clew needs; in a virtual machine, pass the host's CPU through",
                missing.join(", ")
            ));
        }
        if self.kept & VECTORS != VECTORS {
            return Some(
                "the kernel doesn't keep AVX registers; it must be started without noxsave and the like".into(),
            );
        }
        if self.hwcap2 & HWCAP2_FSGSBASE == 0 {
            return Some(
                "the kernel doesn't let programs set FS and GS bases; it must be 5.9 or later, without nofsgsbase"
                    .into(),
            );
        }
        None
    }
}

#[target_feature(enable = "xsave")]
unsafe fn read_xcr0() -> u64 {
    // SAFETY: the caller has found OSXSAVE.
    unsafe { _xgetbv(0) }
}

fn xcr0() -> u64 {
    // SAFETY: called only where the kernel has switched the instruction on.
    unsafe { read_xcr0() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Answers = Answers {
        basic: XSAVE | OSXSAVE | AVX,
        extended: FSGSBASE | BMI2,
        kept: 7,
        hwcap2: 2,
    };

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(GOOD.problem(), None);
        let says = |answers: Answers, word: &str| {
            let text = answers.problem().unwrap_or_default();
            assert!(text.contains(word), "{word}: {text:?}");
        };
        let basic = GOOD.basic & !AVX;
        says(Answers { basic, ..GOOD }, "got AVX,");
        let extended = GOOD.extended & !BMI2;
        says(Answers { extended, ..GOOD }, "got BMI2,");
        let extended = 0;
        says(Answers { extended, ..GOOD }, "got FSGSBASE, BMI2,");
        says(Answers { kept: 3, ..GOOD }, "AVX registers");
        says(Answers { hwcap2: 0, ..GOOD }, "nofsgsbase");
    }

    #[test]
    fn tests_run_where_the_engine_can() {
        assert_eq!(problem(), None);
    }
}
