//! The host calls behind the guest's mappings, and what the host really has mapped.
//!
//! All of these act on guest ranges only; callers check that before.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::reserve;
use crate::kernel::stop;
use crate::layout;
use crate::sys;
use crate::syscall;

pub const MAP_FIXED_NOREPLACE: i32 = 0x10_0000;

/// The real protection for what the guest asked for: guest pages are never executable, since
/// translated copies run instead; code that is only executable must still be readable to us.
pub fn real_prot(prot: i32) -> i32 {
    let data = prot & !libc::PROT_EXEC;
    if prot & libc::PROT_EXEC != 0 {
        data | libc::PROT_READ
    } else {
        data
    }
}

fn answer(ret: i64) -> Result<u64, i32> {
    if sys::is_err(ret) {
        Err(-ret as i32)
    } else {
        Ok(ret as u64)
    }
}

/// Maps at exactly `addr`; `flags` says whether what is there may be replaced.
pub fn mmap(addr: u64, len: u64, prot: i32, flags: i32, fd: i32, off: u64) -> Result<u64, i32> {
    debug_assert!(layout::is_guest(addr, len));
    // SAFETY: the range is the guest's (checked by the caller), so no memory that Rust code
    // uses is replaced.
    let map = || unsafe { syscall!(libc::SYS_mmap, addr, len, prot, flags, fd, off) };
    let got = answer(reserve::asked(map))?;
    if got != addr {
        // A kernel before 4.17 takes MAP_FIXED_NOREPLACE for a hint.
        munmap(got..got + len)?;
        return Err(libc::EEXIST);
    }
    Ok(got)
}

pub fn munmap(range: Range<u64>) -> Result<u64, i32> {
    // SAFETY: the range is the guest's, or was just mapped and not handed out.
    let unmap = || unsafe { syscall!(libc::SYS_munmap, range.start, range.end - range.start) };
    answer(reserve::asked(unmap))
}

/// The kernel refuses to part a mapping, and there is no doing without: says so and ends the process.
pub fn out_of_mappings(what: &str) -> ! {
    stop::warn(&format!(
        "{what}: the kernel allows no more mappings; stopping. sysctl -w vm.max_map_count=1048576 allows more"
    ));
    stop::exit(stop::STATUS)
}

/// Sets the real protection; `prot` may carry PROT_GROWSDOWN and the like.
pub fn mprotect(range: Range<u64>, prot: i32) -> Result<u64, i32> {
    // SAFETY: the range is the guest's; the engine reads and writes guest memory only where
    // the map of mappings allows it.
    let protect = || unsafe {
        syscall!(
            libc::SYS_mprotect,
            range.start,
            range.end - range.start,
            prot
        )
    };
    answer(reserve::asked(protect))
}

pub fn mremap(old: u64, old_len: u64, new_len: u64, flags: i32, new: u64) -> Result<u64, i32> {
    // SAFETY: both ranges are the guest's.
    let remap = || unsafe { syscall!(libc::SYS_mremap, old, old_len, new_len, flags, new) };
    answer(reserve::asked(remap))
}

pub fn madvise(addr: u64, len: u64, advice: i32) -> Result<u64, i32> {
    // SAFETY: the range is the guest's.
    answer(unsafe { syscall!(libc::SYS_madvise, addr, len, advice) })
}

/// Which pages are in memory: one byte for each, bit 0.
pub fn mincore(range: Range<u64>, present: &mut [u8]) -> Result<u64, i32> {
    let len = range.end - range.start;
    debug_assert!(present.len() as u64 * 4096 >= len);
    // SAFETY: the kernel writes a byte for each page, for which there is room.
    answer(unsafe { syscall!(libc::SYS_mincore, range.start, len, present.as_mut_ptr()) })
}

/// The parts of a range where nothing is really mapped.
pub fn unmapped(range: Range<u64>) -> Vec<Range<u64>> {
    let mut gone: Vec<Range<u64>> = Vec::new();
    for page in range.step_by(4096) {
        if mincore(page..page + 4096, &mut [0]).is_err() {
            match gone.last_mut().filter(|last| last.end == page) {
                Some(last) => last.end += 4096,
                None => gone.push(page..page + 4096),
            }
        }
    }
    gone
}

/// Whether the machine has anything swapped out.
pub fn swap_in_use() -> bool {
    let mut info = std::mem::MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel writes one sysinfo; zeroes are a valid one otherwise.
    let info = unsafe {
        syscall!(libc::SYS_sysinfo, info.as_mut_ptr());
        info.assume_init()
    };
    info.totalswap != info.freeswap
}

/// This process may look at no process's memory through the kernel, its own included.
static LOCKED: AtomicBool = AtomicBool::new(false);

/// From here on [`read_memory`] does without the kernel; the engine's handlers are installed.
pub fn locked_in() {
    LOCKED.store(true, Ordering::Relaxed);
}

/// Copies from guest memory; the error is EFAULT where it can't be read, never a signal.
pub fn read_memory(addr: u64, buf: &mut [u8]) -> Result<usize, i32> {
    if LOCKED.load(Ordering::Relaxed) {
        let read = crate::guest::access::read_bytes(addr, buf);
        return read.map(|()| buf.len()).map_err(|_| libc::EFAULT);
    }
    let local = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let remote = libc::iovec {
        iov_base: addr as *mut libc::c_void,
        iov_len: buf.len(),
    };
    // SAFETY: the kernel writes at most `buf.len()` bytes at `buf` and checks the other side.
    let ret = unsafe {
        let pid = syscall!(libc::SYS_getpid);
        syscall!(
            libc::SYS_process_vm_readv,
            pid,
            &raw const local,
            1,
            &raw const remote,
            1,
            0
        )
    };
    if ret != sys::err(libc::EPERM) && ret != sys::err(libc::ENOSYS) {
        return answer(ret).map(|n| n as usize);
    }
    // Containers may forbid that call even on oneself.
    let mem = std::fs::File::open("/proc/self/mem");
    let read = mem.and_then(|mem| std::os::unix::fs::FileExt::read_at(&mem, buf, addr));
    read.map_err(|e| e.raw_os_error().unwrap_or(libc::EFAULT))
}

/// The text of the host's `/proc/self/maps`.
pub fn maps() -> std::io::Result<Vec<u8>> {
    std::fs::read("/proc/self/maps")
}

/// One line of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    pub range: Range<u64>,
    pub offset: u64,
    /// Device and inode as printed.
    pub dev: &'a str,
    pub ino: &'a str,
    pub name: &'a [u8],
}

/// Takes a line of `/proc/self/maps` apart.
pub fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        *rest = tail.get(1..).unwrap_or_default();
        std::str::from_utf8(word).ok()
    }
    let mut rest = line;
    let (start, end) = field(&mut rest)?.split_once('-')?;
    let hex = |s| u64::from_str_radix(s, 16).ok();
    let range = hex(start)?..hex(end)?;
    let _prot = field(&mut rest)?;
    let offset = hex(field(&mut rest)?)?;
    let (dev, ino) = (field(&mut rest)?, field(&mut rest)?);
    let name = rest
        .iter()
        .position(|&b| b != b' ')
        .map_or(&[][..], |at| &rest[at..]);
    Some(Line {
        range,
        offset,
        dev,
        ino,
        name,
    })
}

/// The part of `range` that is the engine's: the code cache wherever it lies, and real mappings
/// in the engine's ranges. Looks at `/proc` only if `range` is not all the guest's.
pub fn engine_overlap(range: Range<u64>) -> Option<Range<u64>> {
    let common = |r: &Range<u64>| {
        let both = r.start.max(range.start)..r.end.min(range.end);
        (!both.is_empty()).then_some(both)
    };
    if let Some(cache) = common(&layout::CODE_CACHE) {
        return Some(cache);
    }
    let areas = [layout::ENGINE_IMAGE, layout::ENGINE_MAPS];
    if !areas.iter().any(|a| common(a).is_some()) {
        return None;
    }
    let Ok(text) = maps() else { return Some(range) };
    let mut lines = text.split(|&b| b == b'\n').filter_map(parse_line);
    lines.find_map(|l| {
        let ours = areas.iter().any(|a| a.contains(&l.range.start));
        if ours { common(&l.range) } else { None }
    })
}
