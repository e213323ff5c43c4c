//! What this machine is, as a recording remembers it: CPU, kernel, names.

use std::collections::BTreeSet;
use std::ffi::CStr;

use clew_engine::kernel::cpuid::Cpuid;
use clew_recording::meta::Machine;

/// Where in the answers of `cpuid` a feature shows: leaf, subleaf, register (eax to edx), bit.
struct Feature(&'static str, u32, u32, usize, u32);

/// Features that programs choose their code by, by the names in `/proc/cpuinfo`.
const FEATURES: &[Feature] = &[
    Feature("cx8", 1, 0, 3, 8),
    Feature("cmov", 1, 0, 3, 15),
    Feature("mmx", 1, 0, 3, 23),
    Feature("fxsr", 1, 0, 3, 24),
    Feature("sse", 1, 0, 3, 25),
    Feature("sse2", 1, 0, 3, 26),
    Feature("sse3", 1, 0, 2, 0),
    Feature("pclmulqdq", 1, 0, 2, 1),
    Feature("ssse3", 1, 0, 2, 9),
    Feature("fma", 1, 0, 2, 12),
    Feature("cx16", 1, 0, 2, 13),
    Feature("sse4_1", 1, 0, 2, 19),
    Feature("sse4_2", 1, 0, 2, 20),
    Feature("movbe", 1, 0, 2, 22),
    Feature("popcnt", 1, 0, 2, 23),
    Feature("aes", 1, 0, 2, 25),
    Feature("xsave", 1, 0, 2, 26),
    Feature("avx", 1, 0, 2, 28),
    Feature("f16c", 1, 0, 2, 29),
    Feature("rdrand", 1, 0, 2, 30),
    Feature("fsgsbase", 7, 0, 1, 0),
    Feature("bmi1", 7, 0, 1, 3),
    Feature("avx2", 7, 0, 1, 5),
    Feature("bmi2", 7, 0, 1, 8),
    Feature("erms", 7, 0, 1, 9),
    Feature("rdseed", 7, 0, 1, 18),
    Feature("adx", 7, 0, 1, 19),
    Feature("clflushopt", 7, 0, 1, 23),
    Feature("clwb", 7, 0, 1, 24),
    Feature("sha_ni", 7, 0, 1, 29),
    Feature("gfni", 7, 0, 2, 8),
    Feature("vaes", 7, 0, 2, 9),
    Feature("vpclmulqdq", 7, 0, 2, 10),
    Feature("rdpid", 7, 0, 2, 22),
    Feature("movdiri", 7, 0, 2, 27),
    Feature("movdir64b", 7, 0, 2, 28),
    Feature("fsrm", 7, 0, 3, 4),
    Feature("serialize", 7, 0, 3, 14),
    Feature("avx_vnni", 7, 1, 0, 4),
    Feature("avx_ifma", 7, 1, 0, 23),
    Feature("xsaveopt", 0xd, 1, 0, 0),
    Feature("xsavec", 0xd, 1, 0, 1),
    Feature("lahf_lm", 0x8000_0001, 0, 2, 0),
    Feature("abm", 0x8000_0001, 0, 2, 5),
    Feature("sse4a", 0x8000_0001, 0, 2, 6),
    Feature("3dnowprefetch", 0x8000_0001, 0, 2, 8),
    Feature("xop", 0x8000_0001, 0, 2, 11),
    Feature("fma4", 0x8000_0001, 0, 2, 16),
    Feature("tbm", 0x8000_0001, 0, 2, 21),
    Feature("rdtscp", 0x8000_0001, 0, 3, 27),
    Feature("clzero", 0x8000_0008, 0, 1, 0),
];

/// This machine, with what a guest is shown of its CPU.
pub fn here(portable: bool) -> Machine {
    let mut cpuid = Cpuid::default();
    let mut answer = |leaf, subleaf| cpuid.answer(leaf, subleaf, None, portable);
    let bytes =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let [_, ebx, ecx, edx] = answer(0, 0);
    let vendor = printable(&bytes(&[ebx, edx, ecx]));
    let mut brand = Vec::new();
    if answer(0x8000_0000, 0)[0] >= 0x8000_0004 {
        for leaf in 0x8000_0002..=0x8000_0004 {
            brand.extend(bytes(&answer(leaf, 0)));
        }
    }
    let brand = printable(&brand);
    let mut features = BTreeSet::new();
    for &Feature(name, leaf, subleaf, register, bit) in FEATURES {
        let there = has_leaf(leaf, &mut answer) && answer(leaf, subleaf)[register] >> bit & 1 != 0;
        if there {
            features.insert(name.to_string());
        }
    }
    let names = Names::ask();
    Machine {
        brand: if brand.is_empty() {
            vendor.clone()
        } else {
            brand
        },
        vendor,
        features,
        kernel: names.kernel,
        hostname: names.host,
        user: user(),
    }
}

/// Beyond its last leaf a CPU answers with another one's words.
fn has_leaf(leaf: u32, answer: &mut impl FnMut(u32, u32) -> [u32; 4]) -> bool {
    answer(leaf & 0x8000_0000, 0)[0] >= leaf
}

fn printable(bytes: &[u8]) -> String {
    let text: String = bytes
        .iter()
        .take_while(|&&byte| byte != 0)
        .map(|&byte| {
            if byte.is_ascii_graphic() {
                byte as char
            } else {
                ' '
            }
        })
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Names {
    kernel: String,
    host: String,
}

impl Names {
    fn ask() -> Names {
        let mut names = std::mem::MaybeUninit::<libc::utsname>::zeroed();
        // SAFETY: writes one utsname, of which all bytes may be zero; its strings end with NUL.
        let (system, release, host) = unsafe {
            libc::uname(names.as_mut_ptr());
            let names = names.assume_init_ref();
            let text = |name: &[std::ffi::c_char]| {
                CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
            };
            (
                text(&names.sysname),
                text(&names.release),
                text(&names.nodename),
            )
        };
        Names {
            kernel: format!("{system} {release}"),
            host,
        }
    }
}

/// Who records: the login name where there is one.
fn user() -> String {
    // SAFETY: asks for a number.
    let uid = unsafe { libc::getuid() };
    // Not getpwuid: a static libc knows only this file anyway.
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(uid)).then(|| name.to_string())
    });
    found.unwrap_or_else(|| format!("uid {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_names_and_the_baseline() {
        let machine = here(false);
        assert!(machine.features.contains("sse2"), "{machine:?}");
        assert!(!machine.vendor.is_empty() && !machine.kernel.is_empty());
        assert!(
            !machine
                .features
                .iter()
                .any(|name| name.starts_with("avx512"))
        );
    }

    #[test]
    fn features_are_the_kernels() {
        let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") else {
            return;
        };
        let flags = text.lines().find(|line| line.starts_with("flags"));
        let flags: BTreeSet<&str> = flags.unwrap_or("").split_whitespace().collect();
        for name in here(false).features {
            // The kernel has its own name for SSE3.
            let name = if name == "sse3" { "pni" } else { name.as_str() };
            // It hides some that it doesn't use itself.
            let hidden = ["xsaveopt", "xsavec", "fsgsbase", "rdpid", "serialize"];
            assert!(flags.contains(name) || hidden.contains(&name), "{name}");
        }
    }

    #[test]
    fn portable_is_a_part_of_it() {
        let (all, portable) = (here(false).features, here(true).features);
        assert!(portable.is_subset(&all));
        assert!(!portable.contains("rdrand") && !portable.contains("sha_ni"));
    }
}
