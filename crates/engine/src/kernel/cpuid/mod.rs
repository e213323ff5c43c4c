//! What `cpuid` tells the guest: this CPU, without what the engine can't carry.
//!
//! In a virtual machine each `cpuid` traps to the hypervisor (7 to 70 µs), and a libc executes
//! some forty at start. So the answers are kept, and written to a file in the cache folder that
//! the next process reads. The file is good for this boot of this machine only.
//!
//! What can differ from one processor of the machine to the next, its number, is always 0.
//!
//! - [`shown`]: what is hidden, always and from programs that shall be `--portable`
//! - [`features`]: which of it a replay needs

mod features;
mod shown;

pub use features::{required, vendor};
pub use shown::{hwcap, hwcap2};

use std::arch::x86_64::__cpuid_count;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::cache::store::{OPEN_FLAGS, may_write};
use crate::syscall;

/// eax, ebx, ecx, edx.
pub type Answer = [u32; 4];

/// Size of the XSAVE area for x87, SSE and AVX, the state that guests are shown.
pub const XSAVE_SIZE: u32 = 832;
/// The value of XCR0 that guests are shown.
pub const XCR0: u64 = 7;

pub const FILE: &str = "cpuid";
const MAGIC: u64 = u64::from_le_bytes(*b"clewcpu1");
/// More than any CPU has; a guest that asks nonsense mustn't fill memory.
const MOST: usize = 256;
const MOST_BYTES: u64 = 40 + MOST as u64 * size_of::<Row>() as u64;

/// One kept answer: leaf, subleaf and the CPU's own, unmasked words.
type Row = [u32; 6];

/// The kept answers.
#[derive(Default)]
pub struct Cpuid {
    rows: Vec<Row>,
    looked_for_file: bool,
}

impl Cpuid {
    /// What the guest is told for `leaf` and `subleaf`. `folder` is where answers are kept.
    /// `portable`: only features that most CPUs have.
    pub fn answer(
        &mut self,
        leaf: u32,
        subleaf: u32,
        folder: Option<&Path>,
        portable: bool,
    ) -> Answer {
        if !self.looked_for_file {
            self.looked_for_file = true;
            if let Some(folder) = folder {
                self.load_or_fill(folder);
            }
        }
        // Most leaves don't look at ecx, and most programs leave in it what happens to be there.
        let subleaf = if has_subleaves(leaf) { subleaf } else { 0 };
        let find = |rows: &[Row], sub| rows.iter().find(|r| r[0] == leaf && r[1] == sub).copied();
        let row = match find(&self.rows, subleaf) {
            Some(row) => row,
            None => {
                let row = ask(leaf, subleaf);
                if self.rows.len() < MOST {
                    self.rows.push(row);
                }
                row
            }
        };
        shown::shown(leaf, subleaf, [row[2], row[3], row[4], row[5]], portable)
    }

    fn load_or_fill(&mut self, folder: &Path) {
        let Some(identity) = identity() else { return };
        let path = folder.join(FILE);
        if let Some(rows) = read(&path).and_then(|b| parse(&b, &identity)) {
            self.rows = rows;
            return;
        }
        // Write first, then ask: where nothing can be written, asking for all would be a waste.
        let temporary = folder.join(format!("{FILE}.{}", std::process::id()));
        if may_write(MOST_BYTES).is_err() || std::fs::write(&temporary, []).is_err() {
            return;
        }
        self.rows = everything();
        let bytes = serialise(&self.rows, &identity);
        let written = std::fs::write(&temporary, bytes);
        if written.is_err() || std::fs::rename(&temporary, &path).is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(OPEN_FLAGS)
        .open(path)
        .ok()?;
    let len = file.metadata().ok().filter(|meta| meta.is_file())?.len();
    let mut bytes = vec![0; len.min(MOST_BYTES) as usize];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

fn ask(leaf: u32, subleaf: u32) -> Row {
    let r = __cpuid_count(leaf, subleaf);
    [leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx]
}

/// All leaves that programs look at, with their subleaves.
fn everything() -> Vec<Row> {
    let mut rows = Vec::new();
    for base in [0u32, 0x4000_0000, 0x8000_0000] {
        let first = ask(base, 0);
        let last = first[2].clamp(base, base + 0x24);
        rows.push(first);
        for leaf in base + 1..=last {
            for subleaf in 0..subleaves(leaf) {
                rows.push(ask(leaf, subleaf));
            }
        }
    }
    rows.truncate(MOST);
    rows
}

/// Whether the answer may depend on ecx. Only leaves known not to are excepted.
fn has_subleaves(leaf: u32) -> bool {
    !matches!(
        leaf,
        0..=3 | 5 | 6 | 8..=0xa | 0x15 | 0x16 | 0x8000_0000..=0x8000_001c | 0x8000_001e
    )
}

fn subleaves(leaf: u32) -> u32 {
    match leaf {
        4 | 0x8000_001d => 5,
        7 | 0xd => 3,
        0xb | 0x1f => 3,
        0x18 => 4,
        _ => 1,
    }
}

/// What the answers depend on: the machine (its name and kernel), the features the kernel saw,
/// and when it was booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    machine: u64,
    features: [u64; 2],
    /// Seconds since 1970; setting the clock moves it a little.
    boot: i64,
}

/// How far the computed time of boot may drift while it is the same boot.
const DRIFT: i64 = 30;

fn identity() -> Option<Identity> {
    let mut name = [0u8; 390];
    // SAFETY: uname writes one utsname, which has 390 bytes.
    if unsafe { syscall!(libc::SYS_uname, name.as_mut_ptr()) } != 0 {
        return None;
    }
    // FNV-1a: any change of the names must show, no more.
    let machine = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3)
    });
    let now = |clock| {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes one timespec.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec
    };
    // SAFETY: getauxval only looks things up.
    let features = unsafe {
        [
            libc::getauxval(libc::AT_HWCAP),
            libc::getauxval(libc::AT_HWCAP2),
        ]
    };
    Some(Identity {
        machine,
        features,
        boot: now(libc::CLOCK_REALTIME) - now(libc::CLOCK_BOOTTIME),
    })
}

fn serialise(rows: &[Row], identity: &Identity) -> Vec<u8> {
    let mut bytes = Vec::new();
    let head = [
        MAGIC,
        identity.machine,
        identity.features[0],
        identity.features[1],
        identity.boot as u64,
    ];
    for word in head {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for word in rows.iter().flatten() {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn parse(bytes: &[u8], identity: &Identity) -> Option<Vec<Row>> {
    let (head, rows) = bytes.split_at_checked(40)?;
    let word = |i: usize| u64::from_le_bytes(head[8 * i..8 * i + 8].try_into().expect("8 bytes"));
    let same = word(0) == MAGIC
        && word(1) == identity.machine
        && [word(2), word(3)] == identity.features
        && (word(4) as i64).abs_diff(identity.boot) <= DRIFT as u64;
    if !same || rows.is_empty() || !rows.len().is_multiple_of(24) || rows.len() / 24 > MOST {
        return None;
    }
    let row = |chunk: &[u8]| {
        let mut row = [0; 6];
        for (word, bytes) in row.iter_mut().zip(chunk.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        }
        row
    };
    Some(rows.chunks_exact(24).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_avx_component_is_where_the_engine_keeps_it() {
        let mut cpuid = Cpuid::default();
        assert_eq!(cpuid.answer(0xd, 2, None, false)[..2], [256, 576]);
    }

    #[test]
    fn answers_survive_in_a_file() {
        let identity = identity().unwrap();
        let rows = vec![[0, 0, 1, 2, 3, 4], [7, 1, 5, 6, 7, 8]];
        let bytes = serialise(&rows, &identity);
        assert_eq!(parse(&bytes, &identity), Some(rows));
        let later = Identity {
            boot: identity.boot + DRIFT + 1,
            ..identity
        };
        assert_eq!(parse(&bytes, &later), None);
        assert_eq!(parse(&bytes[..bytes.len() - 1], &identity), None);
        assert_eq!(parse(&[], &identity), None);
    }

    #[test]
    fn a_folder_keeps_them() {
        let folder = std::env::temp_dir().join(format!("clew-cpuid-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let asked = Cpuid::default().answer(0, 0, Some(&folder), false);
        assert!(folder.join(FILE).exists());
        let mut second = Cpuid::default();
        assert_eq!(second.answer(0, 0, Some(&folder), false), asked);
        assert!(second.rows.len() > 10);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
