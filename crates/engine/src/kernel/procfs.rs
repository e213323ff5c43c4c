//! `/proc/self` as the guest must see it.
//!
//! Most files there are right as they are: descriptors, status, comm; also cmdline, environ and
//! auxv, since [`announce`] tells the kernel where the guest's are. Three would show the engine:
//!
//! - `exe`: links to the guest's file; opening and stat follow there,
//! - `maps`: written from the guest's own map; opening gives a memory file with the text,
//! - `smaps` and `numa_maps`: the kernel's text, without the engine's mappings (permissions in it
//!   are the real ones: translated code never runs from guest pages, so none has `x`).
//!
//! Only the process itself is shown so; another process's `exe` and `maps` are the kernel's.

use std::os::unix::ffi::OsStrExt;

use super::table::Args;
use super::{Outcome, pass_nr, pokes};
use crate::executor::Executor;
use crate::guest::access;
use crate::layout;
use crate::loader::Entry;
use crate::sys::{self, err};
use crate::syscall;

/// A file of `/proc/self` that needs the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    Exe,
    Maps,
    /// The kernel's text without the engine's mappings: its name in `/proc/self`.
    Filtered(&'static std::ffi::CStr),
    Cmdline,
    Environ,
    Auxv,
}

impl Special {
    /// The file of that name in a process's folder.
    fn named(name: &[u8]) -> Option<Special> {
        Some(match name {
            b"exe" => Special::Exe,
            b"maps" => Special::Maps,
            b"smaps" => Special::Filtered(c"/proc/self/smaps"),
            b"numa_maps" => Special::Filtered(c"/proc/self/numa_maps"),
            b"cmdline" => Special::Cmdline,
            b"environ" => Special::Environ,
            b"auxv" => Special::Auxv,
            _ => return None,
        })
    }
}

/// Which special file an absolute path leads to, if `me` is this process.
fn classify(path: &[u8], me: i64) -> Option<Special> {
    let mut parts = path
        .strip_prefix(b"/proc/")?
        .split(|&b| b == b'/')
        .filter(|part| !part.is_empty() && *part != b".");
    let who = parts.next()?;
    if who != b"self" && who != b"thread-self" && number(who) != Some(me) {
        return None;
    }
    let mut name = parts.next()?;
    if name == b"task" {
        number(parts.next()?)?;
        name = parts.next()?;
    }
    parts.next().is_none().then(|| Special::named(name))?
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The special file that the guest names by `path` (an address), relative to `dir`.
fn find(ex: &Executor, dir: u64, path: u64) -> Option<Special> {
    let mut start = [0; 6];
    let absolute = match access::read_bytes(path, &mut start) {
        Ok(()) if start[0] == b'/' => {
            if &start != b"/proc/" {
                return None;
            }
            true
        }
        Ok(()) => false,
        // So short that it ends before a page does: only names like "exe" and "maps" matter.
        Err(_) if matches!(access::read::<u8>(path), Ok(b'/')) => return None,
        Err(_) => false,
    };
    let mut text = access::read_cstr(path, libc::PATH_MAX as usize).ok()?;
    let last = text.rsplit(|&b| b == b'/').next().unwrap_or(&[]);
    let special = Special::named(last)?;
    let natural = matches!(special, Special::Cmdline | Special::Environ | Special::Auxv);
    if natural && !ex.kernel.own.made_up_proc {
        return None;
    }
    if !absolute {
        let mut whole = if dir as i32 == libc::AT_FDCWD {
            link(c"/proc/self/cwd")
        } else {
            descriptor_path(dir as i32)
        };
        if whole != b"/proc" && !whole.starts_with(b"/proc/") {
            return None;
        }
        whole.push(b'/');
        whole.extend_from_slice(&text);
        text = whole;
    }
    // SAFETY: getpid touches no memory.
    classify(&text, unsafe { syscall!(libc::SYS_getpid) })
}

/// What a symbolic link says; empty if it can't be read.
fn link(path: &std::ffi::CStr) -> Vec<u8> {
    let mut text = vec![0; libc::PATH_MAX as usize];
    // SAFETY: the kernel writes at most the buffer's length into it.
    let len = unsafe {
        syscall!(
            libc::SYS_readlink,
            path.as_ptr(),
            text.as_mut_ptr(),
            text.len()
        )
    };
    text.truncate(len.max(0) as usize);
    text
}

/// The path of what a descriptor has open, as the kernel tells it.
pub fn descriptor_path(fd: i32) -> Vec<u8> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).expect("digits");
    link(&path)
}

/// The guest's executable as a C string.
pub fn exe_path(ex: &Executor) -> Vec<u8> {
    let mut path = ex.program.exe.as_os_str().as_bytes().to_vec();
    path.push(0);
    path
}

pub fn open(ex: &mut Executor, a: Args) -> Outcome {
    match find(ex, libc::AT_FDCWD as u64, a[0]) {
        None => {
            let outcome = pass_nr(ex, libc::SYS_open, a);
            pokes::opened(ex, a[1], outcome)
        }
        Some(special) => open_special(ex, special, a[1]),
    }
}

pub fn creat(ex: &mut Executor, a: Args) -> Outcome {
    let outcome = pass_nr(ex, libc::SYS_creat, a);
    pokes::opened(ex, libc::O_WRONLY as u64, outcome)
}

pub fn openat(ex: &mut Executor, a: Args) -> Outcome {
    match find(ex, a[0], a[1]) {
        None => {
            let outcome = pass_nr(ex, libc::SYS_openat, a);
            pokes::opened(ex, a[2], outcome)
        }
        Some(special) => open_special(ex, special, a[2]),
    }
}

pub fn openat2(ex: &mut Executor, a: Args) -> Outcome {
    match find(ex, a[0], a[1]) {
        None => {
            let outcome = pass_nr(ex, libc::SYS_openat2, a);
            let flags = access::read::<u64>(a[2]).unwrap_or(libc::O_RDWR as u64);
            pokes::opened(ex, flags, outcome)
        }
        Some(special) => match access::read::<u64>(a[2]) {
            Ok(flags) => open_special(ex, special, flags),
            Err(_) => Outcome::Return(err(libc::EFAULT)),
        },
    }
}

fn open_special(ex: &mut Executor, special: Special, flags: u64) -> Outcome {
    let flags = flags as i32;
    if special == Special::Exe {
        if flags & libc::O_NOFOLLOW != 0 && flags & libc::O_PATH == 0 {
            return Outcome::Return(err(libc::ELOOP));
        }
        let path = exe_path(ex);
        // SAFETY: opens a path in a live buffer with the guest's flags.
        return Outcome::Return(unsafe { syscall!(libc::SYS_open, path.as_ptr(), flags, 0) });
    }
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Outcome::Return(err(libc::EACCES));
    }
    Outcome::Return(match text(ex, special) {
        Some(text) => memory_file(&text, flags & libc::O_CLOEXEC != 0),
        None => err(libc::EACCES),
    })
}

fn text(ex: &Executor, special: Special) -> Option<Vec<u8>> {
    let entry = ex.kernel.entry.as_ref()?;
    match special {
        Special::Exe => None,
        Special::Maps => ex.memory.maps_text().ok(),
        Special::Filtered(path) => {
            let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
            Some(without_engine(&std::fs::read(path).ok()?))
        }
        Special::Cmdline => bytes(&entry.args),
        Special::Environ => bytes(&entry.env),
        Special::Auxv => Some(entry.auxv.clone()),
    }
}

fn bytes(range: &std::ops::Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    access::read_bytes(range.start, &mut bytes).ok()?;
    Some(bytes)
}

/// Drops the engine's mappings from `smaps` or `numa_maps`. Each mapping starts with a line of its
/// address in lower-case hex; lines about it start with a capital letter.
fn without_engine(text: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut keep = true;
    for line in text.split_inclusive(|&b| b == b'\n') {
        let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        if digits > 0 && matches!(line.get(digits), Some(b'-' | b' ')) {
            let start = std::str::from_utf8(&line[..digits]).unwrap_or("");
            keep = u64::from_str_radix(start, 16).is_ok_and(|at| layout::is_guest(at, 1));
        }
        if keep {
            kept.extend_from_slice(line);
        }
    }
    kept
}

/// A descriptor that reads as `text`.
fn memory_file(text: &[u8], cloexec: bool) -> i64 {
    if text.len() as u64 > super::file_size_limit() {
        return full_pipe(text, cloexec);
    }
    let flags = if cloexec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: a constant name, then writes from a live buffer into the new file.
    unsafe {
        let fd = syscall!(libc::SYS_memfd_create, c"proc".as_ptr(), flags);
        if sys::is_err(fd) {
            return fd;
        }
        let mut done = 0;
        while done < text.len() {
            let rest = &text[done..];
            let ret = syscall!(libc::SYS_write, fd, rest.as_ptr(), rest.len());
            if ret <= 0 {
                syscall!(libc::SYS_close, fd);
                return if ret == 0 { err(libc::EIO) } else { ret };
            }
            done += ret as usize;
        }
        syscall!(libc::SYS_lseek, fd, 0, libc::SEEK_SET);
        fd
    }
}

/// The same where files may not be that large: it can be read, once.
fn full_pipe(text: &[u8], cloexec: bool) -> i64 {
    let mut ends = [0i32; 2];
    let flags = libc::O_NONBLOCK | if cloexec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the kernel writes two descriptors; then calls on these, with a live buffer.
    unsafe {
        let ret = syscall!(libc::SYS_pipe2, ends.as_mut_ptr(), flags);
        if sys::is_err(ret) {
            return ret;
        }
        let [read, write] = ends;
        syscall!(libc::SYS_fcntl, write, libc::F_SETPIPE_SZ, text.len());
        let ret = syscall!(libc::SYS_write, write, text.as_ptr(), text.len());
        syscall!(libc::SYS_close, write);
        if ret == text.len() as i64 {
            return i64::from(read);
        }
        syscall!(libc::SYS_close, read);
        if sys::is_err(ret) {
            ret
        } else {
            err(libc::ENOMEM)
        }
    }
}

pub fn readlink(ex: &mut Executor, a: Args) -> Outcome {
    match find(ex, libc::AT_FDCWD as u64, a[0]) {
        Some(Special::Exe) => exe_link(ex, a[1], a[2]),
        _ => pass_nr(ex, libc::SYS_readlink, a),
    }
}

pub fn readlinkat(ex: &mut Executor, a: Args) -> Outcome {
    match find(ex, a[0], a[1]) {
        Some(Special::Exe) => exe_link(ex, a[2], a[3]),
        _ => pass_nr(ex, libc::SYS_readlinkat, a),
    }
}

fn exe_link(ex: &mut Executor, buffer: u64, size: u64) -> Outcome {
    if size as i32 <= 0 {
        return Outcome::Return(err(libc::EINVAL));
    }
    let mut path = ex.program.exe.as_os_str().as_bytes().to_vec();
    if !path.ends_with(b" (deleted)") && !ex.program.exe.exists() {
        path.extend_from_slice(b" (deleted)");
    }
    path.truncate(size as usize);
    if access::write_bytes(buffer, &path).is_err() {
        return Outcome::Return(err(libc::EFAULT));
    }
    Outcome::Return(path.len() as i64)
}

/// For calls that follow `/proc/self/exe`: the same call with the guest's own file instead.
/// `path` is the index of the path argument, after a folder's descriptor if `at`.
fn follow(ex: &mut Executor, nr: i64, a: Args, path: usize, at: bool) -> Outcome {
    let dir = if at { a[0] } else { libc::AT_FDCWD as u64 };
    if find(ex, dir, a[path]) != Some(Special::Exe) {
        return pass_nr(ex, nr, a);
    }
    let exe = exe_path(ex);
    let mut changed = a;
    changed[path] = exe.as_ptr() as u64;
    pass_nr(ex, nr, changed)
}

pub fn stat(ex: &mut Executor, a: Args) -> Outcome {
    follow(ex, libc::SYS_stat, a, 0, false)
}

pub fn access(ex: &mut Executor, a: Args) -> Outcome {
    follow(ex, libc::SYS_access, a, 0, false)
}

pub fn newfstatat(ex: &mut Executor, a: Args) -> Outcome {
    const NR: i64 = libc::SYS_newfstatat;
    if a[3] as i32 & libc::AT_SYMLINK_NOFOLLOW != 0 {
        return pass_nr(ex, NR, a);
    }
    follow(ex, NR, a, 1, true)
}

pub fn statx(ex: &mut Executor, a: Args) -> Outcome {
    if a[2] as i32 & libc::AT_SYMLINK_NOFOLLOW != 0 {
        return pass_nr(ex, libc::SYS_statx, a);
    }
    follow(ex, libc::SYS_statx, a, 1, true)
}

pub fn faccessat(ex: &mut Executor, a: Args) -> Outcome {
    let nr = ex.gs.regs.gpr[crate::context::RAX] as i64;
    follow(ex, nr, a, 1, true)
}

/// The path that exec should use: the guest's own for its `/proc/self/exe`.
pub fn exec_path(ex: &Executor, dir: u64, path: u64) -> Option<Vec<u8>> {
    (find(ex, dir, path) == Some(Special::Exe))
        .then(|| ex.program.exe.as_os_str().as_bytes().into())
}

/// Tells the kernel where the guest's arguments, environment and auxiliary vector are, so that
/// `/proc/<pid>` shows them to everybody, follows what the guest writes there (titles for `ps`),
/// and calls the guest's stack `[stack]`. Says whether the kernel agreed; old or small ones don't.
pub fn announce(entry: &Entry) -> bool {
    /// `struct prctl_mm_map`.
    #[repr(C)]
    #[derive(Default)]
    struct Map {
        code: [u64; 2],
        data: [u64; 2],
        brk: [u64; 2],
        stack: u64,
        args: [u64; 2],
        env: [u64; 2],
        auxv: u64,
        auxv_size: u32,
        exe_fd: u32,
    }
    const PR_SET_MM_MAP: u64 = 14;
    // SAFETY: brk(0) only asks.
    let brk = unsafe { syscall!(libc::SYS_brk, 0) } as u64;
    let map = Map {
        code: [entry.exe_base, entry.exe_base + 4096],
        data: [entry.exe_base, entry.exe_base + 4096],
        // The engine's own heap goes on growing from here.
        brk: [brk, brk],
        stack: entry.sp,
        args: [entry.args.start, entry.args.end],
        env: [entry.env.start, entry.env.end],
        auxv: entry.auxv.as_ptr() as u64,
        auxv_size: entry.auxv.len() as u32,
        exe_fd: u32::MAX,
    };
    // SAFETY: the kernel reads the structure and the vector; both are alive.
    let ret = unsafe {
        syscall!(
            libc::SYS_prctl,
            libc::PR_SET_MM,
            PR_SET_MM_MAP,
            &raw const map,
            size_of::<Map>(),
            0
        )
    };
    ret == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_are_recognised() {
        let is = |path: &str| classify(path.as_bytes(), 42);
        assert_eq!(is("/proc/self/exe"), Some(Special::Exe));
        assert_eq!(is("/proc/42/exe"), Some(Special::Exe));
        assert_eq!(is("/proc/thread-self/maps"), Some(Special::Maps));
        assert_eq!(is("/proc//self/./maps"), Some(Special::Maps));
        assert_eq!(is("/proc/self/task/77/maps"), Some(Special::Maps));
        assert_eq!(
            is("/proc/self/smaps"),
            Some(Special::Filtered(c"/proc/self/smaps"))
        );
        for other in [
            "/proc/43/exe",
            "/proc/self",
            "/proc/self/exe/x",
            "/proc/self/fd/3",
            "/proc/maps",
            "/proc/self/task/x/maps",
            "/procs/self/exe",
            "/tmp/proc/self/exe",
        ] {
            assert_eq!(is(other), None, "{other}");
        }
    }

    #[test]
    fn the_engines_mappings_are_left_out() {
        let text = b"00400000-00401000 r--p 00000000 00:00 0\nSize: 4 kB\n\
            7f0000000000-7f0000001000 r-xp 00000000 00:00 0\nSize: 8 kB\n\
            200000000000-200000001000 rw-p 00000000 00:00 0\nSize: 12 kB\n";
        let kept = String::from_utf8(without_engine(text)).unwrap();
        assert!(kept.contains("4 kB") && kept.contains("12 kB"));
        assert!(!kept.contains("8 kB"));
    }

    #[test]
    fn memory_files_read_from_their_start() {
        let fd = memory_file(b"text", true);
        assert!(fd >= 0);
        let mut buffer = [0u8; 8];
        // SAFETY: reads into a buffer of that size.
        let len = unsafe { syscall!(libc::SYS_read, fd, buffer.as_mut_ptr(), 8) };
        assert_eq!(&buffer[..len as usize], b"text");
        super::super::descriptors::close(fd as i32);
    }
}
