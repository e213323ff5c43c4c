//! What this machine is, as a recording remembers it: CPU, kernel, names.

use std::ffi::CStr;

use clew_engine::kernel::cpuid::{self, Cpuid};
use clew_recording::meta::Machine;

/// This machine, with what a guest is shown of its CPU.
pub fn here(portable: bool) -> Machine {
    let mut cpuid = Cpuid::default();
    let vendor = printable(cpuid::vendor(&mut cpuid, None).as_bytes());
    let features = cpuid::required(&mut cpuid, None, portable);
    let mut answer = |leaf| cpuid.answer(leaf, 0, None, portable);
    let mut brand = Vec::new();
    if answer(0x8000_0000)[0] >= 0x8000_0004 {
        for leaf in 0x8000_0002..=0x8000_0004 {
            brand.extend(answer(leaf).map(u32::to_le_bytes).concat());
        }
    }
    let brand = printable(&brand);
    let names = Names::ask();
    Machine {
        brand: if brand.is_empty() {
            vendor.clone()
        } else {
            brand
        },
        vendor,
        features: features.into_iter().map(String::from).collect(),
        kernel: names.kernel,
        hostname: names.host,
        user: user(),
    }
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
        let flags: Vec<&str> = flags.unwrap_or("").split_whitespace().collect();
        for name in here(false).features {
            // The kernel has its own name for SSE3.
            let name = if name == "sse3" { "pni" } else { name.as_str() };
            // It hides some that it doesn't use itself.
            let hidden = ["xsavec", "fsgsbase", "serialize", "prefetchi", "movrs"];
            assert!(flags.contains(&name) || hidden.contains(&name), "{name}");
        }
    }

    #[test]
    fn portable_is_a_part_of_it() {
        let (all, portable) = (here(false).features, here(true).features);
        assert!(portable.is_subset(&all));
        assert!(!portable.contains("sha_ni"));
    }
}
