//! The bytes of a guest's first stack, laid out exactly as the kernel does it. Pure.
//!
//! From the top down: 8 zero bytes, the executable's name, environment strings, argument strings,
//! "x86_64", 16 random bytes, and, at an address divisible by 16, argc, argv, envp and the
//! auxiliary vector.

use std::ffi::{CStr, CString};
use std::ops::Range;

use super::error::LoadError;
use crate::kernel::cpuid;

/// Stack that is usable below the first frame before it has to grow, as exec leaves it.
pub const SPARE: u64 = 128 << 10;

/// Smallest alternate signal stack: what the kernel says where XSAVE takes 832 bytes, which is
/// what the engine's signal frames hold.
const MINSIGSTKSZ: u64 = 1776;
const AT_MINSIGSTKSZ: u64 = 51;
const PLATFORM: &[u8] = b"x86_64\0";
const LONGEST_STRING: usize = 128 << 10;

/// What goes onto the stack.
pub struct Contents<'a> {
    pub argv: &'a [CString],
    pub envp: &'a [CString],
    pub execfn: &'a CStr,
    pub random: [u8; 16],
    pub auxv: Auxv,
}

/// The auxiliary vector's values that aren't addresses on the stack itself.
pub struct Auxv {
    pub sysinfo: u64,
    pub phdr: u64,
    pub phnum: u64,
    pub base: u64,
    pub entry: u64,
    pub host: HostValues,
}

/// Values that the guest gets as the engine's own process got them.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostValues {
    pub hwcap: u64,
    pub hwcap2: u64,
    pub clktck: u64,
    pub uid: u64,
    pub euid: u64,
    pub gid: u64,
    pub egid: u64,
    pub secure: u64,
}

impl HostValues {
    /// `portable`: with CPU features as cpuid shows them then.
    pub fn ask(portable: bool) -> HostValues {
        // SAFETY: getauxval only looks its argument up.
        let value = |key| unsafe { libc::getauxval(key) };
        HostValues {
            hwcap: cpuid::hwcap(value(libc::AT_HWCAP), portable),
            hwcap2: cpuid::hwcap2(value(libc::AT_HWCAP2)),
            clktck: value(libc::AT_CLKTCK),
            uid: value(libc::AT_UID),
            euid: value(libc::AT_EUID),
            gid: value(libc::AT_GID),
            egid: value(libc::AT_EGID),
            secure: value(libc::AT_SECURE),
        }
    }
}

/// The finished stack: `bytes` belong at `sp` and reach to the top.
pub struct Stack {
    pub bytes: Vec<u8>,
    pub sp: u64,
    pub args: Range<u64>,
    pub env: Range<u64>,
    pub auxv: Vec<u8>,
}

/// Would exec accept these strings under a stack limit of `limit` bytes?
pub fn check_size(argv: &[CString], envp: &[CString], limit: u64) -> Result<(), LoadError> {
    let mut total = 0u64;
    for s in argv.iter().chain(envp) {
        let len = s.as_bytes_with_nul().len();
        if len > LONGEST_STRING {
            return Err(LoadError::ArgumentsTooLong);
        }
        total += len as u64 + 8;
    }
    let most = (limit / 4).min(6 << 20).max(LONGEST_STRING as u64);
    if total > most {
        Err(LoadError::ArgumentsTooLong)
    } else {
        Ok(())
    }
}

/// Builds the stack that ends at `top`.
pub fn build(top: u64, contents: &Contents<'_>) -> Stack {
    let size = |all: &[CString]| {
        all.iter()
            .map(|s| s.as_bytes_with_nul().len() as u64)
            .sum::<u64>()
    };
    let execfn = top - 8 - contents.execfn.to_bytes_with_nul().len() as u64;
    let env_start = execfn - size(contents.envp);
    let args_start = env_start - size(contents.argv);
    let platform = (args_start & !15) - PLATFORM.len() as u64;
    let random = platform - contents.random.len() as u64;

    let auxv = auxv(&contents.auxv, random, execfn, platform);
    let words = 1 + contents.argv.len() + 1 + contents.envp.len() + 1;
    let sp = ((random & !15) - (words * 8 + auxv.len()) as u64) & !15;

    let mut bytes = Vec::with_capacity((top - sp) as usize);
    let word = |bytes: &mut Vec<u8>, n: u64| bytes.extend_from_slice(&n.to_le_bytes());
    word(&mut bytes, contents.argv.len() as u64);
    for (strings, mut at) in [(contents.argv, args_start), (contents.envp, env_start)] {
        for s in strings {
            word(&mut bytes, at);
            at += s.as_bytes_with_nul().len() as u64;
        }
        word(&mut bytes, 0);
    }
    bytes.extend_from_slice(&auxv);
    bytes.resize((random - sp) as usize, 0);
    bytes.extend_from_slice(&contents.random);
    bytes.extend_from_slice(PLATFORM);
    bytes.resize((args_start - sp) as usize, 0);
    for s in contents.argv.iter().chain(contents.envp) {
        bytes.extend_from_slice(s.as_bytes_with_nul());
    }
    bytes.extend_from_slice(contents.execfn.to_bytes_with_nul());
    bytes.resize((top - sp) as usize, 0);
    Stack {
        bytes,
        sp,
        args: args_start..env_start,
        env: env_start..execfn,
        auxv,
    }
}

fn auxv(a: &Auxv, random: u64, execfn: u64, platform: u64) -> Vec<u8> {
    let h = &a.host;
    // In the kernel's order.
    let entries = [
        (libc::AT_SYSINFO_EHDR, a.sysinfo),
        (AT_MINSIGSTKSZ, MINSIGSTKSZ),
        (libc::AT_HWCAP, h.hwcap),
        (libc::AT_PAGESZ, 4096),
        (libc::AT_CLKTCK, h.clktck),
        (libc::AT_PHDR, a.phdr),
        (libc::AT_PHENT, 56),
        (libc::AT_PHNUM, a.phnum),
        (libc::AT_BASE, a.base),
        (libc::AT_FLAGS, 0),
        (libc::AT_ENTRY, a.entry),
        (libc::AT_UID, h.uid),
        (libc::AT_EUID, h.euid),
        (libc::AT_GID, h.gid),
        (libc::AT_EGID, h.egid),
        (libc::AT_SECURE, h.secure),
        (libc::AT_RANDOM, random),
        (libc::AT_HWCAP2, h.hwcap2),
        (libc::AT_EXECFN, execfn),
        (libc::AT_PLATFORM, platform),
        (libc::AT_NULL, 0),
    ];
    entries
        .iter()
        .flat_map(|&(key, value)| [key, value])
        .flat_map(u64::to_le_bytes)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word(s: &Stack, at: u64) -> u64 {
        let i = (at - s.sp) as usize;
        u64::from_le_bytes(s.bytes[i..i + 8].try_into().unwrap())
    }

    fn string(s: &Stack, at: u64) -> CString {
        let rest = &s.bytes[(at - s.sp) as usize..];
        CStr::from_bytes_until_nul(rest).unwrap().to_owned()
    }

    proptest! {
        #[test]
        fn everything_is_found_again(
            argv in prop::collection::vec("[a-z]{0,20}", 0..9),
            envp in prop::collection::vec("[A-Z]{1,9}=[a-z]{0,30}", 0..9),
            name in "/[a-z]{1,40}",
        ) {
            let c = |v: Vec<String>| v.into_iter().map(|s| CString::new(s).unwrap()).collect::<Vec<_>>();
            let (argv, envp) = (c(argv), c(envp));
            let execfn = CString::new(name).unwrap();
            let auxv = Auxv { sysinfo: 1, phdr: 2, phnum: 3, base: 4, entry: 5, host: HostValues::default() };
            let random = *b"0123456789abcdef";
            let top = crate::layout::STACK_TOP;
            let s = build(top, &Contents { argv: &argv, envp: &envp, execfn: &execfn, random, auxv });

            prop_assert_eq!(s.sp % 16, 0);
            prop_assert_eq!(s.sp + s.bytes.len() as u64, top);
            prop_assert_eq!(word(&s, s.sp), argv.len() as u64);
            let mut at = s.sp + 8;
            for (all, range) in [(&argv, &s.args), (&envp, &s.env)] {
                let mut expected = range.start;
                for one in all {
                    prop_assert_eq!(word(&s, at), expected);
                    prop_assert_eq!(&string(&s, expected), one);
                    expected += one.as_bytes_with_nul().len() as u64;
                    at += 8;
                }
                prop_assert_eq!(expected, range.end);
                prop_assert_eq!(word(&s, at), 0);
                at += 8;
            }
            let mut seen = std::collections::HashMap::new();
            while word(&s, at) != 0 {
                seen.insert(word(&s, at), word(&s, at + 8));
                at += 16;
            }
            prop_assert_eq!(string(&s, seen[&libc::AT_EXECFN]), execfn);
            prop_assert_eq!(string(&s, seen[&libc::AT_PLATFORM]), c"x86_64".to_owned());
            let r = (seen[&libc::AT_RANDOM] - s.sp) as usize;
            prop_assert_eq!(&s.bytes[r..r + 16], &random);
            prop_assert_eq!(seen[&libc::AT_ENTRY], 5);
            prop_assert_eq!(word(&s, top - 8), 0);
        }
    }

    #[test]
    fn limits_are_those_of_exec() {
        let s = |n| vec![CString::new(vec![b'a'; n]).unwrap()];
        assert!(
            check_size(&s(LONGEST_STRING - 1), &[], 0).is_err(),
            "no room for pointers"
        );
        assert!(check_size(&s(LONGEST_STRING - 1), &[], 64 << 20).is_ok());
        assert!(check_size(&s(LONGEST_STRING), &[], 64 << 20).is_err());
        let many = vec![CString::new("x").unwrap(); 1 << 20];
        assert!(check_size(&many, &[], 8 << 20).is_err());
    }
}
