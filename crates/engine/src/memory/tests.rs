//! The mapping calls, made for real in the test process.

use super::host::MAP_FIXED_NOREPLACE;
use super::testing::memory;
use super::*;
use crate::layout;
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};
use proptest::prelude::*;
use std::os::fd::AsRawFd;

const ANON: i32 = MAP_PRIVATE | MAP_ANONYMOUS;
const RW: i32 = PROT_READ | PROT_WRITE;
const RX: i32 = PROT_READ | PROT_EXEC;
const RWX: i32 = RW | PROT_EXEC;

fn errno<T: std::fmt::Debug>(r: Result<T, MapError>) -> i32 {
    match r {
        Err(MapError::Errno(e)) => e,
        other => panic!("{other:?}"),
    }
}

/// What became stale, as pairs.
fn stale(m: &mut Memory) -> Vec<(u64, u64)> {
    m.take_stale()
        .into_iter()
        .map(|r| (r.start, r.end))
        .collect()
}

/// What the host has at `addr`, as four letters.
fn host_prot(addr: u64) -> Option<String> {
    let text = String::from_utf8_lossy(&host::maps().unwrap()).into_owned();
    text.lines().find_map(|l| {
        let line = host::parse_line(l.as_bytes())?;
        line.range
            .contains(&addr)
            .then(|| l.split(' ').nth(1).unwrap().to_owned())
    })
}

fn write(addr: u64, byte: u8) {
    // SAFETY: tests write to pages they have mapped writable.
    unsafe { (addr as *mut u8).write_volatile(byte) }
}

fn read(addr: u64) -> u8 {
    // SAFETY: tests read pages they have mapped readable.
    unsafe { (addr as *const u8).read_volatile() }
}

#[test]
fn places_by_kind() {
    let mut m = memory();
    let data = m.mmap(0, 100, RW, ANON, -1, 0).unwrap();
    assert_eq!(data, layout::HIGH_MAPS.end - PAGE);
    let stack = m
        .mmap(0, 8 << 20, RW, ANON | libc::MAP_STACK, -1, 0)
        .unwrap();
    assert_eq!(stack, data - (8 << 20));
    let jit = m.mmap(0, 0x10000, RWX, ANON, -1, 0).unwrap();
    assert_eq!(jit, layout::LOW_ANON.start);
    assert_eq!(host_prot(jit).unwrap(), "rw-p");
    let low = m.mmap(0, PAGE, RW, ANON | libc::MAP_32BIT, -1, 0).unwrap();
    assert_eq!(low, jit + 0x10000);
    let big = m.mmap(0, 4 << 20, RW, ANON, -1, 0).unwrap();
    assert_eq!(big % (2 << 20), 0);
    let far = m
        .mmap(0, 128 << 20, RWX, ANON | libc::MAP_NORESERVE, -1, 0)
        .unwrap();
    assert!(layout::HIGH_MAPS.contains(&far));
}

#[test]
fn hints_are_taken_where_free() {
    let mut m = memory();
    for hint in [
        0xc0_0000_0000,
        0x1234_5000,
        0x4123_4000,
        0x9000_0000,
        0x6000_0000_0000,
    ] {
        assert_eq!(m.mmap(hint, PAGE, RW, ANON, -1, 0), Ok(hint));
        write(hint, 1);
        assert_ne!(m.mmap(hint, PAGE, RW, ANON, -1, 0).unwrap(), hint);
    }
    assert_eq!(m.mmap(0x2345_6789, PAGE, RW, ANON, -1, 0), Ok(0x2345_6000));
    let not_here = m
        .mmap(layout::CODE_CACHE.start, PAGE, RW, ANON, -1, 0)
        .unwrap();
    assert!(layout::HIGH_MAPS.contains(&not_here));
    let engine = read as fn(u64) -> u8 as usize as u64 & !0xfff;
    assert!(layout::HIGH_MAPS.contains(&m.mmap(engine, PAGE, RW, ANON, -1, 0).unwrap()));
}

#[test]
fn bad_arguments_get_the_kernels_errno() {
    let mut m = memory();
    assert_eq!(errno(m.mmap(0, 0, RW, ANON, -1, 0)), libc::EINVAL);
    assert_eq!(errno(m.mmap(0, PAGE, RW, ANON, -1, 1)), libc::EINVAL);
    assert_eq!(errno(m.mmap(0, PAGE, RW, MAP_PRIVATE, -1, 0)), libc::EBADF);
    assert_eq!(
        errno(m.mmap(0, u64::MAX - 5, RW, ANON, -1, 0)),
        libc::ENOMEM
    );
    assert_eq!(errno(m.mmap(0, 1 << 46, RW, ANON, -1, 0)), libc::ENOMEM);
    assert_eq!(
        errno(m.mmap(0x10_0001, PAGE, RW, ANON | MAP_FIXED, -1, 0)),
        libc::EINVAL
    );
    assert_eq!(
        errno(m.mmap(0, PAGE, RW, MAP_ANONYMOUS, -1, 0)),
        libc::EINVAL
    );
    assert_eq!(errno(m.munmap(0x10_0001, PAGE)), libc::EINVAL);
    assert_eq!(errno(m.munmap(0x10_0000, 0)), libc::EINVAL);
    assert_eq!(m.munmap(0x10_0000, PAGE), Ok(0));
    assert_eq!(errno(m.mprotect(0x10_0000, PAGE, RW)), libc::ENOMEM);
    assert_eq!(errno(m.mprotect(0x10_0001, PAGE, RW)), libc::EINVAL);
    assert_eq!(errno(m.mprotect(0x10_0000, PAGE, 0x100)), libc::EINVAL);
    assert_eq!(m.mprotect(0x10_0000, 0, RW), Ok(0));
    let a = m.mmap(0, PAGE, RW, ANON, -1, 0).unwrap();
    let fixed = ANON | MAP_FIXED_NOREPLACE;
    assert_eq!(errno(m.mmap(a, PAGE, RW, fixed, -1, 0)), libc::EEXIST);
    assert_eq!(
        errno(m.mmap(layout::CODE_CACHE.start, PAGE, RW, fixed, -1, 0)),
        libc::EEXIST
    );
    assert_eq!(
        errno(m.madvise(0x10_0000, PAGE, libc::MADV_DONTNEED)),
        libc::ENOMEM
    );
    let read_only = std::fs::File::open("/etc/passwd").unwrap();
    let fd = read_only.as_raw_fd();
    assert_eq!(errno(m.mmap(0, PAGE, RW, MAP_SHARED, fd, 0)), libc::EACCES);
    assert_eq!(m.iter().count(), 1);
}

#[test]
fn the_engine_is_out_of_bounds() {
    let mut m = memory();
    let cache = layout::CODE_CACHE.start + PAGE;
    let ours = read as fn(u64) -> u8 as usize as u64 & !0xfff;
    let local = 0u64;
    let stack = &raw const local as u64 & !0xfff;
    for addr in [cache, ours, stack] {
        let fixed = ANON | MAP_FIXED;
        assert!(matches!(
            m.mmap(addr, PAGE, RW, fixed, -1, 0),
            Err(MapError::Engine(_))
        ));
        // To the guest nothing is there, and nothing happens: this test goes on.
        assert_eq!(m.munmap(addr, PAGE), Ok(0));
        assert_eq!(errno(m.mprotect(addr, PAGE, PROT_READ)), libc::ENOMEM);
        assert_eq!(errno(m.madvise(addr, PAGE, 4)), libc::ENOMEM);
        assert!(matches!(
            m.mremap(addr, PAGE, PAGE * 2, 1, 0),
            Err(MapError::Engine(_))
        ));
        let a = m.mmap(0, PAGE, RW, ANON, -1, 0).unwrap();
        assert!(matches!(
            m.mremap(a, PAGE, PAGE, 3, addr),
            Err(MapError::Engine(_))
        ));
    }
    // Nothing of ours is there.
    assert_eq!(m.munmap(layout::ENGINE_IMAGE.start, PAGE), Ok(0));
    assert_eq!(
        errno(m.mprotect(layout::ENGINE_IMAGE.start, PAGE, RW)),
        libc::ENOMEM
    );
    // A range that begins in the guest's memory and ends in ours.
    let last = layout::CODE_CACHE.start - PAGE;
    m.mmap(last, PAGE, RW, ANON | MAP_FIXED, -1, 0).unwrap();
    assert_eq!(m.munmap(last, 2 * PAGE), Ok(0));
    assert!(m.find(last).is_none());
}

#[test]
fn protection_is_set_up_to_the_first_hole() {
    let mut m = memory();
    let a = m.mmap(0x4100_0000, 4 * PAGE, RW, ANON, -1, 0).unwrap();
    m.munmap(a + 2 * PAGE, PAGE).unwrap();
    assert_eq!(errno(m.mprotect(a, 4 * PAGE, PROT_READ)), libc::ENOMEM);
    let prots: Vec<_> = m.iter().map(|m| m.prot).collect();
    assert_eq!(prots, [PROT_READ, RW]);
    assert_eq!(host_prot(a).unwrap(), "r--p");
    assert_eq!(host_prot(a + 3 * PAGE).unwrap(), "rw-p");
    m.mprotect(a, PAGE, PROT_EXEC).unwrap();
    assert_eq!(
        host_prot(a).unwrap(),
        "r--p",
        "readable for the translator, never executable"
    );
}

#[test]
fn images_lie_low_and_data_high() {
    let mut m = memory();
    let elf = std::fs::File::open("/bin/true").unwrap();
    let fd = elf.as_raw_fd();
    let len = elf.metadata().unwrap().len().next_multiple_of(PAGE);
    let base = m.mmap(0, len, PROT_READ, MAP_PRIVATE, fd, 0).unwrap();
    assert!(layout::IMAGES.contains(&base));
    let text = base + 2 * PAGE;
    m.mmap(text, PAGE, RX, MAP_PRIVATE | MAP_FIXED, fd, 2 * PAGE)
        .unwrap();
    let Fetch::Executable(code) = m.fetch(text + 5) else {
        panic!()
    };
    assert!(code.immutable && code.range == (text..text + PAGE));
    let image = code.image.unwrap();
    assert_eq!(
        (image.base, (text + 5).wrapping_add(image.to_offset)),
        (base, 2 * PAGE + 5)
    );
    assert_eq!(m.fetch(base), Fetch::NotExecutable);
    assert_eq!(m.fetch(base - 1), Fetch::Unmapped);
    assert_eq!(
        m.path(base),
        Some(std::fs::canonicalize("/bin/true").unwrap())
    );

    let id = m.build_id(base).unwrap();
    let readelf = std::process::Command::new("readelf")
        .args(["-n", "/bin/true"])
        .output()
        .unwrap();
    let hex: String = id.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
    assert!(String::from_utf8_lossy(&readelf.stdout).contains(&hex));

    // Writable once is mutable for ever.
    m.mprotect(text, PAGE, RW).unwrap();
    assert_eq!(stale(&mut m), [(text, text + PAGE)]);
    m.mprotect(text, PAGE, RX).unwrap();
    assert!(matches!(m.fetch(text), Fetch::Executable(c) if !c.immutable));

    // The same file, unmapped and mapped again, has the same place; a second copy hasn't.
    m.munmap(base, len).unwrap();
    assert_eq!(m.mmap(0, len, PROT_READ, MAP_PRIVATE, fd, 0), Ok(base));
    assert_ne!(m.mmap(0, len, PROT_READ, MAP_PRIVATE, fd, 0), Ok(base));

    let data = std::fs::File::open("/etc/passwd").unwrap();
    let at = m
        .mmap(0, PAGE, PROT_READ, MAP_PRIVATE, data.as_raw_fd(), 0)
        .unwrap();
    assert!(layout::HIGH_MAPS.contains(&at));
}

#[test]
fn code_pages_are_write_protected_lazily() {
    let mut m = memory();
    let a = m.mmap(0, 4 * PAGE, RWX, ANON, -1, 0).unwrap();
    write(a, 0xc3);
    m.protect_code(a + PAGE..a + PAGE + 10).unwrap();
    assert_eq!(host_prot(a).unwrap(), "rw-p");
    assert_eq!(host_prot(a + PAGE).unwrap(), "r--p");
    assert!(m.code_write_fault(a + PAGE + 100) && !m.code_write_fault(a));
    assert!(!m.stale_pending());

    // W^X and back: still protected; what may not be executed is stale.
    m.mprotect(a, 4 * PAGE, RX).unwrap();
    assert!(!m.stale_pending());
    assert!(!m.code_write_fault(a + PAGE), "the guest's own protection");
    m.mprotect(a, 4 * PAGE, RW).unwrap();
    assert_eq!(host_prot(a + PAGE).unwrap(), "r--p");
    assert_eq!(host_prot(a + 2 * PAGE).unwrap(), "rw-p");
    assert_eq!(stale(&mut m), [(a, a + 4 * PAGE)]);
    assert!(m.code_write_fault(a + PAGE));
    m.unprotect_code(a + PAGE + 7);
    assert_eq!(host_prot(a + PAGE).unwrap(), "rw-p");
    assert!(!m.stale_pending());

    // The kernel writes.
    m.mprotect(a, 4 * PAGE, RWX).unwrap();
    m.protect_code(a..a + 2 * PAGE).unwrap();
    assert!(m.unprotect_for_kernel(a + PAGE + 5, 10));
    assert!(!m.unprotect_for_kernel(a + PAGE + 5, 10));
    assert_eq!(stale(&mut m), [(a + PAGE, a + 2 * PAGE)]);
    write(a + PAGE, 1);
    assert!(m.code_write_fault(a));

    // Contents thrown away, protection taken away, unmapped: stale.
    m.madvise(a, PAGE, libc::MADV_DONTNEED).unwrap();
    assert_eq!(stale(&mut m), [(a, a + PAGE)]);
    m.mprotect(a, PAGE, PROT_READ).unwrap();
    assert_eq!(stale(&mut m), [(a, a + PAGE)]);
    m.munmap(a, 4 * PAGE).unwrap();
    assert_eq!(stale(&mut m), [(a + PAGE, a + 4 * PAGE)]);
    assert!(!m.stale_pending());
}

#[test]
fn mremap_grows_moves_and_shrinks() {
    let mut m = memory();
    let a = m.mmap(0, 4 * PAGE, RW, ANON, -1, 0).unwrap();
    write(a, 42);
    // The top of the area: no room above.
    assert_eq!(errno(m.mremap(a, 4 * PAGE, 8 * PAGE, 0, 0)), libc::ENOMEM);
    let b = m
        .mremap(a, 4 * PAGE, 8 * PAGE, libc::MREMAP_MAYMOVE, 0)
        .unwrap();
    assert_eq!((read(b), m.find(a)), (42, None));
    assert_eq!(m.mremap(b, 8 * PAGE, 2 * PAGE, 0, 0), Ok(b));
    assert_eq!(m.find(b).unwrap().len(), 2 * PAGE);
    assert_eq!(m.mremap(b, 2 * PAGE, 3 * PAGE, 0, 0), Ok(b));
    assert_eq!(m.find(b).unwrap().len(), 3 * PAGE);
    write(b + 2 * PAGE, 1);
    let to = 0x4200_0000;
    let fixed = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    assert_eq!(m.mremap(b, PAGE, PAGE, fixed, to), Ok(to));
    assert_eq!(read(to), 42);
    assert_eq!(
        (m.find(b), m.find(b + PAGE).unwrap().len()),
        (None, 2 * PAGE)
    );
    assert_eq!(
        errno(m.mremap(to, 2 * PAGE, 2 * PAGE, fixed, to + PAGE)),
        libc::EINVAL
    );
    let c = m
        .mremap(to, PAGE, PAGE, libc::MREMAP_MAYMOVE | 4, 0)
        .unwrap();
    assert_eq!((read(c), read(to)), (42, 0));
    assert_eq!(
        errno(m.mremap(0x4300_0000, PAGE, PAGE * 2, 1, 0)),
        libc::EFAULT
    );
    assert_eq!(errno(m.mremap(c, PAGE, 0, 1, 0)), libc::EINVAL);
    assert_eq!(errno(m.mremap(c, 1 << 40, 1 << 41, 1, 0)), libc::EFAULT);

    // Pages with translated code move as well.
    let x = m.mmap(0, 4 * PAGE, RWX, ANON, -1, 0).unwrap();
    m.protect_code(x + PAGE..x + 2 * PAGE).unwrap();
    let y = m
        .mremap(x, 4 * PAGE, 64 * PAGE, libc::MREMAP_MAYMOVE, 0)
        .unwrap();
    assert_eq!((y, m.find(y).unwrap().prot), (x, RWX));
    let z = m
        .mremap(x, 64 * PAGE, 64 * PAGE, fixed, 0x4400_0000)
        .unwrap();
    assert!(
        m.take_stale()
            .iter()
            .any(|r| r.start <= x && x + 64 * PAGE <= r.end)
    );
    write(z + PAGE, 1);
}

#[test]
fn the_break_moves() {
    let mut m = memory();
    let start = m.brk(0);
    assert_eq!(start, layout::HEAP.start);
    assert_eq!(m.brk(start + 10), start + 10);
    write(start + 9, 1);
    assert_eq!(m.brk(start + 5 * PAGE), start + 5 * PAGE);
    assert_eq!(m.brk(start - 1), start + 5 * PAGE);
    assert_eq!(m.brk(u64::MAX), start + 5 * PAGE);
    assert!(
        String::from_utf8(m.maps_text().unwrap())
            .unwrap()
            .contains("[heap]\n")
    );
    let text = String::from_utf8(m.maps_text().unwrap()).unwrap();
    assert_eq!(text.lines().count(), 1);
    assert_eq!(m.brk(start + PAGE), start + PAGE);
    assert_eq!(m.find(start).unwrap().len(), PAGE);
    // Something in the way.
    m.mmap(start + 2 * PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0)
        .unwrap();
    assert_eq!(m.brk(start + 4 * PAGE), start + PAGE);
    assert_eq!(m.brk(start), start);
}

#[test]
fn maps_look_as_the_kernel_prints_them() {
    let mut m = memory();
    let path = std::env::temp_dir().join(format!("clew-maps-{}", std::process::id()));
    std::fs::write(&path, vec![1; 3 * PAGE as usize]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let fd = file.as_raw_fd();
    let at = m
        .mmap(0x4500_0000, 3 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0)
        .unwrap();
    m.mprotect(at + PAGE, PAGE, RX).unwrap();
    m.mmap(0x4600_0000, PAGE, RWX, ANON, -1, 0).unwrap();
    m.mmap(0x4600_1000, PAGE, RWX, ANON, -1, 0).unwrap();
    m.protect_code(0x4600_0000..0x4600_0001).unwrap();
    std::fs::remove_file(&path).unwrap();
    let text = String::from_utf8(m.maps_text().unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("45000000-45001000 r--p 00000000 "));
    assert!(lines[1].starts_with("45001000-45002000 r-xp 00001000 "));
    assert!(lines[2].starts_with("45002000-45003000 r--p 00002000 "));
    assert!(
        lines[2].ends_with(&format!("{} (deleted)", path.display())),
        "{text}"
    );
    assert_eq!(lines[3], "46000000-46002000 rwxp 00000000 00:00 0 ");
}

#[test]
fn shared_segments_attach_and_detach() {
    let mut m = memory();
    // SAFETY: creates a segment of our own.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 2 * PAGE as usize, 0o600) };
    assert!(id >= 0);
    let a = m.shmat(id, 0, 0).unwrap();
    let b = m.shmat(id, 0, libc::SHM_RDONLY).unwrap();
    write(a, 7);
    assert_eq!((read(b), m.writable(b)), (7, false));
    assert_eq!(m.shmdt(a), Ok(0));
    assert_eq!((m.find(a), m.find(b).unwrap().len()), (None, 2 * PAGE));
    assert_eq!(errno(m.shmdt(a)), libc::EINVAL);
    // SAFETY: removes our segment.
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
}

#[derive(Clone, Debug)]
enum Op {
    Map(u64, u64, i32, bool),
    Unmap(u64, u64),
    Protect(u64, u64, i32),
    Remap(u64, u64, u64),
    Code(u64),
    Advise(u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let prot = prop::sample::select(vec![0, PROT_READ, RW, RX, RWX]);
    let page = 0..24u64;
    let n = 1..8u64;
    prop_oneof![
        (page.clone(), n.clone(), prot.clone(), any::<bool>())
            .prop_map(|(a, n, p, f)| Op::Map(a, n, p, f)),
        (page.clone(), n.clone()).prop_map(|(a, n)| Op::Unmap(a, n)),
        (page.clone(), n.clone(), prot).prop_map(|(a, n, p)| Op::Protect(a, n, p)),
        (page.clone(), n.clone(), n.clone()).prop_map(|(a, n, k)| Op::Remap(a, n, k)),
        page.clone().prop_map(Op::Code),
        (page, n).prop_map(|(a, n)| Op::Advise(a, n)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Whatever a guest calls: where the map says it may read and write (and no code is
    /// protected) the host agrees, and nothing is executable.
    #[test]
    fn the_map_and_the_host_agree(ops in prop::collection::vec(op(), 1..30)) {
        let base = 0x4700_0000;
        let at = |page: u64| base + page * PAGE;
        let mut m = memory();
        for op in &ops {
            match *op {
                Op::Map(a, n, prot, fixed) => {
                    let flags = if fixed { ANON | MAP_FIXED } else { ANON };
                    m.mmap(at(a), n * PAGE, prot, flags, -1, 0).unwrap();
                }
                Op::Unmap(a, n) => { m.munmap(at(a), n * PAGE).unwrap(); }
                Op::Protect(a, n, prot) => { let _ = m.mprotect(at(a), n * PAGE, prot); }
                Op::Remap(a, n, k) => { let _ = m.mremap(at(a), n * PAGE, k * PAGE, 1, 0); }
                Op::Code(a) if m.find(at(a)).is_some() => m.protect_code(at(a)..at(a) + 1).unwrap(),
                Op::Code(_) => {}
                Op::Advise(a, n) => { let _ = m.madvise(at(a), n * PAGE, libc::MADV_DONTNEED); }
            }
        }
        let text = host::maps().unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<_> = text
            .lines()
            .filter_map(|l| Some((host::parse_line(l.as_bytes())?, l.split(' ').nth(1)?)))
            .collect();
        let pages = m.iter().flat_map(|m| (m.start..m.end).step_by(PAGE as usize)).chain((0..32).map(at));
        for page in pages {
            let real = lines.iter().find(|(l, _)| l.range.contains(&page)).map(|(_, p)| *p);
            let Some(mapping) = m.find(page) else {
                prop_assert_eq!(real, None, "{:#x} after {:?}", page, ops);
                continue;
            };
            let w = mapping.can(PROT_WRITE) && !m.is_code_protected(page);
            let r = mapping.prot != 0;
            let expected = format!("{}{}-p", if r { 'r' } else { '-' }, if w { 'w' } else { '-' });
            prop_assert_eq!(real, Some(expected.as_str()), "{:#x} after {:?}", page, ops);
        }
    }
}
