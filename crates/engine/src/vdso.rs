//! The vdso that guests see, and the functions of the host's own.
//!
//! The guest's is one page, the same in every process, built at compile time: a shared object with all that tools look
//! for (symbols, versions, unwinding, section headers), whose functions just make their system call. The translator knows their addresses ([`entry`]) and may
//! answer the calls faster, with the host's functions ([`host_functions`]).

use crate::layout::VDSO;
use crate::memory::PAGE;

/// What stands for the file's size and time where translations of it are saved.
pub const SIZE_AND_TIME: (u64, i64) = (PAGE, 0);

/// The functions of the vdso, in the order of their code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VdsoCall {
    ClockGettime,
    Gettimeofday,
    Time,
    Getcpu,
    ClockGetres,
}

const CALLS: [(VdsoCall, &str, u32); 5] = [
    (
        VdsoCall::ClockGettime,
        "__vdso_clock_gettime",
        libc::SYS_clock_gettime as u32,
    ),
    (
        VdsoCall::Gettimeofday,
        "__vdso_gettimeofday",
        libc::SYS_gettimeofday as u32,
    ),
    (VdsoCall::Time, "__vdso_time", libc::SYS_time as u32),
    (VdsoCall::Getcpu, "__vdso_getcpu", libc::SYS_getcpu as u32),
    (
        VdsoCall::ClockGetres,
        "__vdso_clock_getres",
        libc::SYS_clock_getres as u32,
    ),
];

/// Which function begins at the guest address `pc`.
#[inline]
pub fn entry(pc: u64) -> Option<VdsoCall> {
    let at = pc.wrapping_sub(VDSO + TEXT as u64);
    let index = (at / STEP as u64) as usize;
    if at.is_multiple_of(STEP as u64) && index < CALLS.len() {
        Some(CALLS[index].0)
    } else {
        None
    }
}

/// The page as it is mapped at [`VDSO`].
pub static IMAGE: [u8; 4096] = build();

// Where the parts of the page are.
const PHDRS: usize = 0x40;
const HASH: usize = 0x100;
const GNU_HASH: usize = 0x180;
const DYNSYM: usize = 0x200;
const DYNSTR: usize = 0x380;
const VERSYM: usize = 0x480;
const VERDEF: usize = 0x4c0;
const DYNAMIC: usize = 0x540;
const TEXT: usize = 0x800;
const EH_FRAME: usize = 0x880;
const EH_FRAME_HDR: usize = 0x8c0;
const SHSTRTAB: usize = 0x900;
const SECTIONS: usize = 0xa00;
/// Offset of a function's `syscall` instruction, behind `mov eax, nr`.
pub const SYSCALL_OFFSET: u64 = 5;
/// Distance from one function to the next.
const STEP: usize = 16;

/// Each function has its own name and, weakly, the one without the prefix.
const SYMBOLS: usize = 1 + 2 * CALLS.len();
const SONAME: &str = "linux-vdso.so.1";
const VERSION: &str = "LINUX_2.6";
const PREFIX: usize = "__vdso_".len();

/// Writes into the page while it is built.
struct Page {
    bytes: [u8; 4096],
    at: usize,
}

impl Page {
    const fn put(&mut self, value: u64, size: usize) {
        let le = value.to_le_bytes();
        let mut i = 0;
        while i < size {
            assert!(self.bytes[self.at] == 0, "parts of the vdso overlap");
            self.bytes[self.at] = le[i];
            self.at += 1;
            i += 1;
        }
    }

    /// Appends a string and its NUL; the answer is its offset in the string table at `table`.
    const fn string(&mut self, table: usize, s: &str) -> u64 {
        let offset = self.at - table;
        let mut i = 0;
        while i < s.len() {
            self.put(s.as_bytes()[i] as u64, 1);
            i += 1;
        }
        self.put(0, 1);
        offset as u64
    }

    /// Puts numbers of one size at `at`.
    const fn table(&mut self, at: usize, size: usize, values: &[u64]) {
        self.at = at;
        let mut i = 0;
        while i < values.len() {
            self.put(values[i], size);
            i += 1;
        }
    }
}

const fn build() -> [u8; 4096] {
    let mut p = Page {
        bytes: [0; 4096],
        at: 0,
    };
    // Header: 64-bit little-endian shared object for x86-64, three program headers.
    p.table(
        0,
        1,
        &[0x7f, b'E' as u64, b'L' as u64, b'F' as u64, 2, 1, 1, 0],
    );
    p.table(16, 2, &[3, 62]);
    p.table(20, 4, &[1]);
    p.table(24, 8, &[TEXT as u64, PHDRS as u64, SECTIONS as u64]);
    let sections = Section::ALL.len() as u64;
    p.table(52, 2, &[64, 56, 3, 64, sections, sections - 1]);

    // Names first: everything else refers to them.
    p.at = DYNSTR + 1;
    let soname = p.string(DYNSTR, SONAME);
    let version = p.string(DYNSTR, VERSION);
    let mut names = [0; CALLS.len()];
    let mut i = 0;
    while i < CALLS.len() {
        names[i] = p.string(DYNSTR, CALLS[i].1);
        i += 1;
    }
    let strings = (p.at - DYNSTR) as u64;

    // PT_LOAD (r-x) of the whole page, PT_DYNAMIC (r--), PT_GNU_EH_FRAME (r--).
    let dynamic = [
        [14, soname],
        [4, HASH as u64],
        [0x6fff_fef5, GNU_HASH as u64],
        [5, DYNSTR as u64],
        [6, DYNSYM as u64],
        [10, strings],
        [11, 24],
        [0x6fff_fff0, VERSYM as u64],
        [0x6fff_fffc, VERDEF as u64],
        [0x6fff_fffd, 2],
    ];
    p.table(PHDRS, 4, &[1, 5]);
    p.table(PHDRS + 8, 8, &[0, 0, 0, 4096, 4096, 4096]);
    let size = (dynamic.len() as u64 + 1) * 16;
    p.table(PHDRS + 56, 4, &[2, 4]);
    let at = DYNAMIC as u64;
    p.table(PHDRS + 64, 8, &[at, at, at, size, size, 8]);
    let (at, size) = (EH_FRAME_HDR as u64, EH_FRAME_HDR_SIZE as u64);
    p.table(PHDRS + 112, 4, &[0x6474_e550, 4]);
    p.table(PHDRS + 120, 8, &[at, at, at, size, size, 4]);
    p.at = DYNAMIC;
    let mut i = 0;
    while i < dynamic.len() {
        p.put(dynamic[i][0], 8);
        p.put(dynamic[i][1], 8);
        i += 1;
    }

    // Both hash tables have one bucket, which chains all symbols in order.
    p.table(HASH, 4, &[1, SYMBOLS as u64, 1, 0]);
    let mut i = 1;
    while i < SYMBOLS {
        p.put(if i + 1 < SYMBOLS { i as u64 + 1 } else { 0 }, 4);
        i += 1;
    }
    p.table(GNU_HASH, 4, &[1, 1, 1, 6]);
    p.put(u64::MAX, 8);
    p.put(1, 4);
    let mut i = 1;
    while i < SYMBOLS {
        let last = (i + 1 == SYMBOLS) as u64;
        let name = CALLS[(i - 1) / 2].1.as_bytes();
        p.put(gnu_hash(name, skipped(i)) & !1 | last, 4);
        i += 1;
    }

    // Symbols: strong and weak functions of version 2.
    let mut i = 1;
    while i < SYMBOLS {
        let call = (i - 1) / 2;
        let alias = skipped(i);
        let info = if alias == 0 { 0x12 } else { 0x22 };
        p.table(DYNSYM + 24 * i, 4, &[names[call] + alias as u64]);
        p.table(DYNSYM + 24 * i + 4, 1, &[info, 0]);
        p.table(DYNSYM + 24 * i + 6, 2, &[Section::TEXT_NUMBER]);
        p.table(
            DYNSYM + 24 * i + 8,
            8,
            &[(TEXT + STEP * call) as u64, STEP as u64],
        );
        p.table(VERSYM + 2 * i, 2, &[2]);
        i += 1;
    }

    // Version definitions: the file itself, and LINUX_2.6.
    let versions = [
        [1, 1, 28, soname, elf_hash(SONAME)],
        [0, 2, 0, version, elf_hash(VERSION)],
    ];
    let mut i = 0;
    while i < versions.len() {
        let [flags, index, next, name, hash] = versions[i];
        p.table(VERDEF + 28 * i, 2, &[1, flags, index, 1]);
        p.table(VERDEF + 28 * i + 8, 4, &[hash, 20, next, name, 0]);
        i += 1;
    }

    // mov eax, NR; syscall; ret
    let mut i = 0;
    while i < CALLS.len() {
        p.table(TEXT + STEP * i, 1, &[0xb8]);
        p.put(CALLS[i].2 as u64, 4);
        p.table(TEXT + STEP * i + 5, 1, &[0x0f, 0x05, 0xc3]);
        i += 1;
    }

    put_unwinding(&mut p);
    put_sections(&mut p, strings, dynamic.len() as u64 + 1);
    p.bytes
}

const TEXT_SIZE: usize = STEP * CALLS.len();
/// One rule for all functions, which leave the stack alone: a CIE of 20 bytes, an FDE of 20, the end.
const EH_FRAME_SIZE: usize = 24 + 24 + 4;
/// A table with one entry.
const EH_FRAME_HDR_SIZE: usize = 12 + 8;

/// `.eh_frame` and the table that leads unwinders into it.
const fn put_unwinding(p: &mut Page) {
    const fn relative(from: usize, to: usize) -> u64 {
        (to as u64).wrapping_sub(from as u64)
    }
    // CIE: version 1, "zR", code 1, data -8, return address in 16; pointers are pc-relative, four bytes, signed.
    p.table(EH_FRAME, 4, &[20, 0]);
    p.table(
        EH_FRAME + 8,
        1,
        &[1, b'z' as u64, b'R' as u64, 0, 1, 0x78, 16, 1, 0x1b],
    );
    // The frame is at rsp + 8, the return address 8 below it.
    p.table(EH_FRAME + 17, 1, &[0x0c, 7, 8, 0x90, 1]);
    // FDE: back to the CIE, the code that it covers, nothing to add.
    let fde = EH_FRAME + 24;
    p.table(fde, 4, &[20, 28, relative(fde + 8, TEXT), TEXT_SIZE as u64]);
    // Version 1: where the frames are (pc-relative), the count, a table relative to this place.
    let header = EH_FRAME_HDR;
    p.table(header, 1, &[1, 0x1b, 3, 0x3b]);
    p.table(header + 4, 4, &[relative(header + 4, EH_FRAME), 1]);
    p.table(
        header + 12,
        4,
        &[relative(header, TEXT), relative(header, fde)],
    );
}

/// A section header but for its name and place.
#[derive(Clone, Copy)]
struct Section {
    name: &'static str,
    kind: u64,
    flags: u64,
    at: usize,
    link: u64,
    info: u64,
    align: u64,
    entry: u64,
}

impl Section {
    const TEXT_NUMBER: u64 = 8;
    const ALL: [Section; 12] = {
        const DYNSYM_NUMBER: u64 = 3;
        const DYNSTR_NUMBER: u64 = 4;
        const ALLOC: u64 = 2;
        const fn section(name: &'static str, kind: u64, at: usize, align: u64) -> Section {
            Section {
                name,
                kind,
                flags: ALLOC,
                at,
                link: 0,
                info: 0,
                align,
                entry: 0,
            }
        }
        const fn table(of: Section, link: u64, info: u64, entry: u64) -> Section {
            Section {
                link,
                info,
                entry,
                ..of
            }
        }
        let none = Section {
            flags: 0,
            ..section("", 0, 0, 0)
        };
        let text = Section {
            flags: ALLOC | 4,
            ..section(".text", 1, TEXT, 16)
        };
        let names = Section {
            flags: 0,
            ..section(".shstrtab", 3, SHSTRTAB, 1)
        };
        let (symbols, strings) = (DYNSYM_NUMBER, DYNSTR_NUMBER);
        [
            none,
            table(section(".hash", 5, HASH, 8), symbols, 0, 4),
            table(
                section(".gnu.hash", 0x6fff_fff6, GNU_HASH, 8),
                symbols,
                0,
                0,
            ),
            table(section(".dynsym", 11, DYNSYM, 8), strings, 1, 24),
            section(".dynstr", 3, DYNSTR, 1),
            table(
                section(".gnu.version", 0x6fff_ffff, VERSYM, 2),
                symbols,
                0,
                2,
            ),
            table(
                section(".gnu.version_d", 0x6fff_fffd, VERDEF, 8),
                strings,
                2,
                0,
            ),
            table(section(".dynamic", 6, DYNAMIC, 8), strings, 0, 16),
            text,
            section(".eh_frame", 1, EH_FRAME, 8),
            section(".eh_frame_hdr", 1, EH_FRAME_HDR, 4),
            names,
        ]
    };
}

/// The section headers and their names; `strings` and `dynamic` are what the layout doesn't tell of sizes.
const fn put_sections(p: &mut Page, strings: u64, dynamic: u64) {
    let count = SYMBOLS as u64;
    let mut names = [0; Section::ALL.len()];
    p.at = SHSTRTAB + 1;
    let mut i = 1;
    while i < names.len() {
        names[i] = p.string(SHSTRTAB, Section::ALL[i].name);
        i += 1;
    }
    let sizes = [
        0,
        4 * (3 + count),
        16 + 8 + 4 + 4 * (count - 1),
        24 * count,
        strings,
        2 * count,
        2 * 28,
        16 * dynamic,
        TEXT_SIZE as u64,
        EH_FRAME_SIZE as u64,
        EH_FRAME_HDR_SIZE as u64,
        (p.at - SHSTRTAB) as u64,
    ];
    let mut i = 0;
    while i < names.len() {
        let section = Section::ALL[i];
        let at = SECTIONS + 64 * i;
        let (place, address) = (
            section.at as u64,
            section.at as u64 * (section.flags & 2) / 2,
        );
        p.table(at, 4, &[names[i], section.kind]);
        p.table(at + 8, 8, &[section.flags, address, place, sizes[i]]);
        p.table(at + 40, 4, &[section.link, section.info]);
        p.table(at + 48, 8, &[section.align, section.entry]);
        i += 1;
    }
}

/// How much of the function's name symbol `i` leaves out.
const fn skipped(i: usize) -> usize {
    if i % 2 == 1 { 0 } else { PREFIX }
}

const fn gnu_hash(name: &[u8], from: usize) -> u64 {
    let mut h: u32 = 5381;
    let mut i = from;
    while i < name.len() {
        h = h.wrapping_mul(33).wrapping_add(name[i] as u32);
        i += 1;
    }
    h as u64
}

const fn elf_hash(name: &str) -> u64 {
    let mut h: u32 = 0;
    let mut i = 0;
    while i < name.len() {
        h = (h << 4).wrapping_add(name.as_bytes()[i] as u32);
        let top = h & 0xf000_0000;
        h = (h ^ (top >> 24)) & !top;
        i += 1;
    }
    h as u64
}

/// Addresses of clock_gettime, gettimeofday, time and getcpu in the vdso that the kernel gave this
/// process (`sysinfo_ehdr` is AT_SYSINFO_EHDR, 0 if there is none); 0 for what it lacks.
///
/// # Safety
/// `sysinfo_ehdr` is 0 or the address of a mapped shared object like the kernel's vdso.
pub unsafe fn host_functions(sysinfo_ehdr: u64) -> [u64; 4] {
    let mut found = [0; 4];
    if sysinfo_ehdr == 0 {
        return found;
    }
    // SAFETY: the caller says that a well-formed object lies there.
    let Some(object) = (unsafe { Object::at(sysinfo_ehdr) }) else {
        return found;
    };
    for i in 1..object.symbols {
        // SAFETY: `i` is below the number of symbols that the hash table tells.
        let (name, value) = unsafe { object.symbol(i) };
        for (slot, call) in found.iter_mut().zip(CALLS) {
            if name == call.1.as_bytes() && value != 0 {
                *slot = object.bias.wrapping_add(value);
            }
        }
    }
    found
}

/// A shared object in memory: enough of it to list its symbols.
struct Object {
    bias: u64,
    strings: u64,
    table: u64,
    symbols: u64,
}

impl Object {
    /// # Safety
    /// A well-formed shared object is mapped at `base`.
    unsafe fn at(base: u64) -> Option<Object> {
        // SAFETY: all reads are of addresses from the object's own headers.
        unsafe {
            let (phoff, phnum) = (read::<u64>(base + 32), read::<u16>(base + 56));
            let (mut load, mut dynamic) = (None, None);
            for i in 0..phnum as u64 {
                let ph = base + phoff + 56 * i;
                match read::<u32>(ph) {
                    1 if load.is_none() => load = Some((read::<u64>(ph + 8), read::<u64>(ph + 16))),
                    2 => dynamic = Some(read::<u64>(ph + 16)),
                    _ => {}
                }
            }
            let (offset, vaddr) = load?;
            let bias = base.wrapping_add(offset).wrapping_sub(vaddr);
            let mut entry = bias.wrapping_add(dynamic?);
            let (mut strings, mut table, mut hash, mut gnu) = (None, None, None, None);
            loop {
                let value = Some(bias.wrapping_add(read::<u64>(entry + 8)));
                match read::<u64>(entry) {
                    0 => break,
                    4 => hash = value,
                    5 => strings = value,
                    6 => table = value,
                    0x6fff_fef5 => gnu = value,
                    _ => {}
                }
                entry += 16;
            }
            let symbols = match (hash, gnu) {
                (Some(hash), _) => read::<u32>(hash + 4) as u64,
                (None, Some(gnu)) => gnu_symbols(gnu),
                (None, None) => return None,
            };
            Some(Object {
                bias,
                strings: strings?,
                table: table?,
                symbols,
            })
        }
    }

    /// # Safety
    /// `i` is less than `self.symbols`.
    unsafe fn symbol(&self, i: u64) -> (&[u8], u64) {
        // SAFETY: the symbol table has that many entries, and names end with NUL.
        unsafe {
            let symbol = self.table + 24 * i;
            let name = self.strings + read::<u32>(symbol) as u64;
            let name = std::ffi::CStr::from_ptr(name as *const libc::c_char).to_bytes();
            let defined = read::<u16>(symbol + 6) != 0;
            (name, if defined { read::<u64>(symbol + 8) } else { 0 })
        }
    }
}

/// The number of symbols, from a GNU hash table: the end of the last chain.
///
/// # Safety
/// A well-formed table is at `gnu`.
unsafe fn gnu_symbols(gnu: u64) -> u64 {
    // SAFETY: the addresses follow from the table's own numbers.
    unsafe {
        let (buckets, first) = (read::<u32>(gnu) as u64, read::<u32>(gnu + 4) as u64);
        let at = gnu + 16 + 8 * read::<u32>(gnu + 8) as u64;
        let last = (0..buckets)
            .map(|i| read::<u32>(at + 4 * i) as u64)
            .max()
            .unwrap_or(0);
        if last < first {
            return first;
        }
        let chains = at + 4 * buckets;
        let mut i = last;
        while read::<u32>(chains + 4 * (i - first)) & 1 == 0 {
            i += 1;
        }
        i + 1
    }
}

/// # Safety
/// A `T` can be read at `addr`.
unsafe fn read<T: Copy>(addr: u64) -> T {
    // SAFETY: promised by the caller; alignment isn't needed.
    unsafe { std::ptr::read_unaligned(addr as *const T) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Command;

    #[test]
    fn entries_are_recognised() {
        let start = VDSO + TEXT as u64;
        assert_eq!(entry(start), Some(VdsoCall::ClockGettime));
        assert_eq!(entry(start + 4 * 16), Some(VdsoCall::ClockGetres));
        assert_eq!(entry(start + 5 * 16), None);
        assert_eq!(entry(start + 1), None);
        assert_eq!(entry(0), None);
        assert_eq!(&IMAGE[TEXT + 32..TEXT + 40], b"\xb8\xc9\0\0\0\x0f\x05\xc3");
        assert_eq!(
            elf_hash(VERSION),
            0x3ae75f6,
            "the value that glibc has built in"
        );
    }

    #[test]
    fn our_own_reader_finds_our_own_functions() {
        let base = IMAGE.as_ptr() as u64;
        // SAFETY: the image is a shared object whose only segment is itself.
        let found = unsafe { host_functions(base) };
        let text = base + TEXT as u64;
        assert_eq!(found, [text, text + 16, text + 32, text + 48]);
        // Without DT_HASH, as in newer kernels, the GNU table gives the same.
        let mut gnu_only = IMAGE.to_vec();
        let at = DYNAMIC + 16;
        assert_eq!(gnu_only[at], 4);
        gnu_only[at] = 21; // DT_DEBUG
        let base = gnu_only.as_ptr() as u64;
        // SAFETY: as above.
        assert_eq!(unsafe { host_functions(base) }[3], base + TEXT as u64 + 48);
    }

    /// binutils look at everything, and complain about what they don't understand.
    #[test]
    fn tools_read_it() {
        let so = std::env::temp_dir().join(format!("clew-vdso-{}.so", std::process::id()));
        std::fs::write(&so, IMAGE).unwrap();
        let show = |flags: &str| {
            let run = Command::new("readelf")
                .args(["-W", flags])
                .arg(&so)
                .output();
            let run = run.expect("binutils are installed");
            assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
            String::from_utf8(run.stdout).unwrap()
        };
        let sections = show("-S");
        for section in &Section::ALL[1..] {
            assert!(
                sections.contains(section.name),
                "{}: {sections}",
                section.name
            );
        }
        let text = Section::ALL[Section::TEXT_NUMBER as usize];
        assert_eq!((text.name, text.at), (".text", TEXT));
        assert!(show("-s").contains("__vdso_clock_gettime@@LINUX_2.6"));
        let frames = show("--debug-dump=frames");
        assert!(
            frames.contains(&format!("pc={TEXT:016x}..{:016x}", TEXT + TEXT_SIZE)),
            "{frames}"
        );
        assert!(
            frames.contains("DW_CFA_def_cfa: r7 (rsp) ofs 8"),
            "{frames}"
        );
        assert!(show("-l").contains("GNU_EH_FRAME"));
        show("-a");
        std::fs::remove_file(&so).unwrap();
    }

    #[test]
    fn the_hosts_functions_work() {
        // SAFETY: getauxval is always safe; its answer is the kernel's vdso.
        let found = unsafe { host_functions(libc::getauxval(libc::AT_SYSINFO_EHDR)) };
        if found[2] != 0 {
            // SAFETY: it is __vdso_time, which has this type.
            let time: extern "C" fn(*mut i64) -> i64 = unsafe { std::mem::transmute(found[2]) };
            assert!(time(std::ptr::null_mut()) > 1_600_000_000);
        }
        // SAFETY: 0 stands for "none".
        assert_eq!(unsafe { host_functions(0) }, [0; 4]);
    }

    /// glibc's linker looks symbols up by the same tables and versions: let it.
    #[test]
    fn glibc_finds_versioned_symbols() {
        let dir = std::env::temp_dir().join(format!("clew-vdso-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let so = dir.join("vdso.so");
        std::fs::File::create(&so)
            .unwrap()
            .write_all(&IMAGE)
            .unwrap();
        let c = dir.join("t.c");
        let source = r#"
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <stdio.h>
            #include <time.h>
            int main(int n, char **v) {
                void *h = dlopen(v[1], RTLD_NOW);
                if (!h) { puts(dlerror()); return 1; }
                long (*t)(long *) = dlvsym(h, "__vdso_time", "LINUX_2.6");
                int (*g)(int, struct timespec *) = dlvsym(h, "clock_gettime", "LINUX_2.6");
                struct timespec ts;
                if (!t || !g || !dlvsym(h, "__vdso_getcpu", "LINUX_2.6")) return 2;
                if (dlvsym(h, "__vdso_time", "LINUX_2.5") || dlsym(h, "__vdso_nothing")) return 3;
                return t(0) == time(0) && g(0, &ts) == 0 && ts.tv_sec >= time(0) - 1 ? 0 : 4;
            }"#;
        std::fs::write(&c, source).unwrap();
        let exe = dir.join("t");
        let cc = Command::new("cc")
            .arg("-o")
            .arg(&exe)
            .arg(&c)
            .arg("-ldl")
            .status();
        assert!(cc.expect("a C compiler").success());
        let run = Command::new(&exe).arg(&so).output().unwrap();
        let _ = std::fs::remove_dir_all(&dir);
        assert!(run.status.success(), "{:?}", run);
    }
}
