//! Which file a mapping shows: identity that outlives the descriptor, and what kind of file it is.

use crate::sys;
use crate::syscall;

/// Names the contents of a file as long as nobody changes it behind its modification time's back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub mtime_ns: i64,
}

/// What `fstat` tells about a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct FileStat {
    pub identity: FileIdentity,
    pub mode: u32,
}

impl FileStat {
    pub fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// Asks the kernel about an open descriptor. The error is an errno.
pub fn stat(fd: i32) -> Result<FileStat, i32> {
    // SAFETY: all-zero is a valid `stat`, which is plain numbers.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `stat`, which is what `st` is.
    let ret = unsafe { syscall!(libc::SYS_fstat, fd, &raw mut st) };
    if sys::is_err(ret) {
        return Err(-ret as i32);
    }
    Ok(FileStat {
        identity: FileIdentity {
            dev: st.st_dev,
            ino: st.st_ino,
            size: st.st_size as u64,
            mtime_ns: st
                .st_mtime
                .wrapping_mul(1_000_000_000)
                .wrapping_add(st.st_mtime_nsec),
        },
        mode: st.st_mode,
    })
}

/// Fills `buf` from the file at `offset`, without moving its position. How much there was.
pub fn read_at(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize, i32> {
    let mut done = 0;
    while done < buf.len() {
        let rest = &mut buf[done..];
        let at = offset.saturating_add(done as u64);
        // SAFETY: the kernel writes at most `rest.len()` bytes at `rest`.
        let ret = unsafe { syscall!(libc::SYS_pread64, fd, rest.as_mut_ptr(), rest.len(), at) };
        match ret {
            0 => break,
            n if n > 0 => done += n as usize,
            n if n == sys::err(libc::EINTR) => {}
            n => return Err(-n as i32),
        }
    }
    Ok(done)
}

/// Is this an ELF executable or shared object (and not, say, an object file that a linker reads)?
pub fn is_image(fd: i32) -> bool {
    let mut head = [0; 18];
    let Ok(18) = read_at(fd, &mut head, 0) else {
        return false;
    };
    let kind = u16::from_le_bytes([head[16], head[17]]);
    head.starts_with(b"\x7fELF") && (kind == 2 || kind == 3)
}

/// Is the file on a file system mounted `noexec`?
pub fn on_noexec_mount(fd: i32) -> bool {
    // SAFETY: all-zero is a valid `statfs`, which is plain numbers.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `statfs`, which is what `fs` is.
    let ret = unsafe { syscall!(libc::SYS_fstatfs, fd, &raw mut fs) };
    ret == 0 && fs.f_flags as u64 & libc::ST_NOEXEC != 0
}
