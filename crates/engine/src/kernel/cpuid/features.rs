//! Which features of the CPU a recording needs to be replayed: those that were shown to the guest
//! and that its own instructions may use.
//!
//! What the engine answers itself isn't needed: a replay takes random numbers, time stamps and
//! images of the vector state from the recording.
//!
//! In: cpuid. Out: names as /proc/cpuinfo has them, to be kept with a recording.

use std::collections::BTreeSet;
use std::path::Path;

use super::Cpuid;

/// Name, leaf, subleaf, index of the register (eax, ebx, ecx, edx), bit.
const FEATURES: &[(&str, u32, u32, usize, u32)] = &[
    ("sse3", 0x1, 0, 2, 0),
    ("pclmulqdq", 0x1, 0, 2, 1),
    ("ssse3", 0x1, 0, 2, 9),
    ("fma", 0x1, 0, 2, 12),
    ("cx16", 0x1, 0, 2, 13),
    ("sse4_1", 0x1, 0, 2, 19),
    ("sse4_2", 0x1, 0, 2, 20),
    ("movbe", 0x1, 0, 2, 22),
    ("popcnt", 0x1, 0, 2, 23),
    ("aes", 0x1, 0, 2, 25),
    ("xsave", 0x1, 0, 2, 26),
    ("avx", 0x1, 0, 2, 28),
    ("f16c", 0x1, 0, 2, 29),
    ("fpu", 0x1, 0, 3, 0),
    ("cx8", 0x1, 0, 3, 8),
    ("cmov", 0x1, 0, 3, 15),
    ("clflush", 0x1, 0, 3, 19),
    ("mmx", 0x1, 0, 3, 23),
    ("fxsr", 0x1, 0, 3, 24),
    ("sse", 0x1, 0, 3, 25),
    ("sse2", 0x1, 0, 3, 26),
    ("fsgsbase", 0x7, 0, 1, 0),
    ("bmi1", 0x7, 0, 1, 3),
    ("avx2", 0x7, 0, 1, 5),
    ("bmi2", 0x7, 0, 1, 8),
    ("adx", 0x7, 0, 1, 19),
    ("clflushopt", 0x7, 0, 1, 23),
    ("clwb", 0x7, 0, 1, 24),
    ("sha_ni", 0x7, 0, 1, 29),
    ("gfni", 0x7, 0, 2, 8),
    ("vaes", 0x7, 0, 2, 9),
    ("vpclmulqdq", 0x7, 0, 2, 10),
    ("cldemote", 0x7, 0, 2, 25),
    ("movdiri", 0x7, 0, 2, 27),
    ("movdir64b", 0x7, 0, 2, 28),
    ("serialize", 0x7, 0, 3, 14),
    ("sha512", 0x7, 1, 0, 0),
    ("sm3", 0x7, 1, 0, 1),
    ("sm4", 0x7, 1, 0, 2),
    ("avx_vnni", 0x7, 1, 0, 4),
    ("cmpccxadd", 0x7, 1, 0, 7),
    ("avx_ifma", 0x7, 1, 0, 23),
    ("movrs", 0x7, 1, 0, 31),
    ("avx_vnni_int8", 0x7, 1, 3, 4),
    ("avx_ne_convert", 0x7, 1, 3, 5),
    ("avx_vnni_int16", 0x7, 1, 3, 10),
    ("prefetchi", 0x7, 1, 3, 14),
    ("xsavec", 0xd, 1, 0, 1),
    ("lahf_lm", 0x8000_0001, 0, 2, 0),
    ("abm", 0x8000_0001, 0, 2, 5),
    ("sse4a", 0x8000_0001, 0, 2, 6),
    ("misalignsse", 0x8000_0001, 0, 2, 7),
    ("3dnowprefetch", 0x8000_0001, 0, 2, 8),
    ("xop", 0x8000_0001, 0, 2, 11),
    ("fma4", 0x8000_0001, 0, 2, 16),
    ("tbm", 0x8000_0001, 0, 2, 21),
    ("mwaitx", 0x8000_0001, 0, 2, 29),
    ("mmxext", 0x8000_0001, 0, 3, 22),
    ("3dnowext", 0x8000_0001, 0, 3, 30),
    ("3dnow", 0x8000_0001, 0, 3, 31),
    ("clzero", 0x8000_0008, 0, 1, 0),
];

/// The features that the guest is shown, `portable` or not.
pub fn required(
    cpuid: &mut Cpuid,
    folder: Option<&Path>,
    portable: bool,
) -> BTreeSet<&'static str> {
    FEATURES
        .iter()
        .filter(|&&(_, leaf, subleaf, register, bit)| {
            exists(cpuid, leaf, folder)
                && cpuid.answer(leaf, subleaf, folder, portable)[register] >> bit & 1 != 0
        })
        .map(|&(name, ..)| name)
        .collect()
}

/// Who made the CPU (`GenuineIntel`): approximations and transcendental functions can differ
/// between vendors, so a replay elsewhere may diverge.
pub fn vendor(cpuid: &mut Cpuid, folder: Option<&Path>) -> String {
    let [_, ebx, ecx, edx] = cpuid.answer(0, 0, folder, false);
    let bytes = [ebx, edx, ecx].map(u32::to_le_bytes).concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// CPUs answer beyond their last leaf with that of another one.
fn exists(cpuid: &mut Cpuid, leaf: u32, folder: Option<&Path>) -> bool {
    let first = leaf & 0x8000_0000;
    (first..=cpuid.answer(first, 0, folder, false)[0]).contains(&leaf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_is_a_part_of_it() {
        let mut cpuid = Cpuid::default();
        let full = required(&mut cpuid, None, false);
        let portable = required(&mut cpuid, None, true);
        assert!(portable.is_subset(&full));
        for name in ["sse2", "avx2", "bmi2", "fsgsbase"] {
            assert!(portable.contains(name), "{portable:?}");
        }
        for name in ["sha_ni", "gfni", "adx", "xsavec"] {
            assert!(!portable.contains(name), "{portable:?}");
        }
    }

    #[test]
    fn vendors_have_twelve_letters() {
        assert_eq!(vendor(&mut Cpuid::default(), None).len(), 12);
    }

    #[test]
    fn names_are_plain_and_no_two_the_same() {
        let mut names: Vec<&str> = FEATURES.iter().map(|&(name, ..)| name).collect();
        assert!(names.iter().all(|n| !n.contains([' ', ',', '='])));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FEATURES.len());
    }
}
