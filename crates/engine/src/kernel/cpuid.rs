//! What `cpuid` tells the guest: this CPU, without what the engine can't carry.
//!
//! In a virtual machine each `cpuid` traps to the hypervisor (7 to 70 µs), and a libc executes
//! some forty at start. So the answers are kept, and written to a file in the cache folder that
//! the next process reads. The file is good for this boot of this machine only.

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
    pub fn answer(&mut self, leaf: u32, subleaf: u32, folder: Option<&Path>) -> Answer {
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
        shown(leaf, subleaf, [row[2], row[3], row[4], row[5]])
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
fn shown(leaf: u32, subleaf: u32, real: Answer) -> Answer {
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
        _ => real,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Answer = [u32::MAX; 4];

    #[test]
    fn wide_vectors_and_transactions_are_hidden() {
        let [_, ebx, ecx, edx] = shown(7, 0, ALL);
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
        assert_eq!(shown(0xd, 0, ALL), [7, 832, 832, 0]);
        assert_eq!(shown(0xd, 1, ALL), [7, 832, 0, 0]);
        for subleaf in 3..64 {
            assert_eq!(shown(0xd, subleaf, ALL), [0; 4]);
        }
        for leaf in [0x14, 0x1d, 0x1e] {
            assert_eq!(shown(leaf, 0, ALL), [0; 4]);
        }
    }

    #[test]
    fn the_avx_component_is_where_the_engine_keeps_it() {
        let mut cpuid = Cpuid::default();
        assert_eq!(cpuid.answer(0xd, 2, None)[..2], [256, 576]);
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
        let asked = Cpuid::default().answer(0, 0, Some(&folder));
        assert!(folder.join(FILE).exists());
        let mut second = Cpuid::default();
        assert_eq!(second.answer(0, 0, Some(&folder)), asked);
        assert!(second.rows.len() > 10);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
