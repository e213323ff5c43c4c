//! Which file a mapping shows: identity that outlives the descriptor, and what kind of file it is.

use std::ops::Range;

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
    pub uid: u32,
    /// When contents or properties were last changed.
    pub ctime_ns: i64,
    /// Which device this is, if it is one.
    pub rdev: u64,
}

impl FileStat {
    pub fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// Mapping `/dev/zero` is mapping nothing.
    pub fn is_dev_zero(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFCHR && self.rdev == libc::makedev(1, 5)
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
        uid: st.st_uid,
        ctime_ns: st
            .st_ctime
            .wrapping_mul(1_000_000_000)
            .wrapping_add(st.st_ctime_nsec),
        rdev: st.st_rdev,
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

/// How the file was opened: `O_RDONLY` and so on, and whether it is a mere name (`O_PATH`).
pub fn open_flags(fd: i32) -> Result<i32, i32> {
    // SAFETY: F_GETFL touches no memory.
    let ret = unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_GETFL) };
    if sys::is_err(ret) {
        return Err(-ret as i32);
    }
    Ok(ret as i32)
}

/// Whether the file is a window into the kernel or a device: in `/sys`, `/proc` and the like.
pub fn is_the_kernels(fd: i32) -> bool {
    const PROC: u64 = 0x9fa0;
    const SYS: u64 = 0x6265_6572;
    const DEBUG: u64 = 0x6462_6720;
    const TRACE: u64 = 0x7472_6163;
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: fstatfs writes one statfs, for which there is room; zeroes are a valid one otherwise.
    let kind = unsafe {
        syscall!(libc::SYS_fstatfs, fd, stat.as_mut_ptr());
        stat.assume_init().f_type
    };
    matches!(kind, PROC | SYS | DEBUG | TRACE)
}

/// The same for a file of the guest's, whose position others may rely on at this moment.
pub fn guest_extents(fd: i32, range: Range<u64>) -> Vec<Range<u64>> {
    let Ok(own) = std::fs::File::open(format!("/proc/self/fd/{fd}")) else {
        return vec![range];
    };
    data_extents(std::os::fd::AsRawFd::as_raw_fd(&own), range)
}

/// The parts of `range` that may be other than zero. Moves the file's position and puts it back.
pub fn data_extents(fd: i32, range: Range<u64>) -> Vec<Range<u64>> {
    let seek = |offset: u64, whence: i32| {
        // SAFETY: lseek touches no memory.
        unsafe { syscall!(libc::SYS_lseek, fd, offset, whence) }
    };
    if range.is_empty() {
        return Vec::new();
    }
    let position = seek(0, libc::SEEK_CUR);
    if position < 0 {
        return vec![range];
    }
    let mut extents = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let data = seek(at, libc::SEEK_DATA);
        if data == sys::err(libc::ENXIO) {
            break;
        }
        let hole = seek(data.max(0) as u64, libc::SEEK_HOLE);
        if data < 0 || hole <= data {
            // It can't tell.
            extents.push(at..range.end);
            break;
        }
        let (data, hole) = (data as u64, hole as u64);
        if data >= range.end {
            break;
        }
        extents.push(data.max(at)..hole.min(range.end));
        at = hole;
    }
    seek(position as u64, libc::SEEK_SET);
    extents
}

/// Copies `range` of one file to the same place in another. A file that ends early is copied to
/// its end.
pub fn copy_range(from: i32, to: i32, range: Range<u64>) -> Result<(), i32> {
    let (mut at, mut out) = (range.start, range.start);
    while at < range.end {
        // SAFETY: the kernel reads and writes the two offsets.
        let ret = unsafe {
            syscall!(
                libc::SYS_copy_file_range,
                from,
                &raw mut at,
                to,
                &raw mut out,
                range.end - at,
                0
            )
        };
        match ret {
            // At the end; or a file that only read() can read, such as those of /proc.
            0 => break,
            n if n > 0 || n == sys::err(libc::EINTR) => {}
            n if n == sys::err(libc::ENOSPC) || n == sys::err(libc::EDQUOT) => {
                return Err(-n as i32);
            }
            _ => break,
        }
    }
    let mut buffer = vec![0; 1 << 16];
    while at < range.end {
        let want = buffer.len().min((range.end - at) as usize);
        let n = read_at(from, &mut buffer[..want], at)?;
        if n == 0 {
            break;
        }
        write_at(to, &buffer[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

fn write_at(fd: i32, bytes: &[u8], offset: u64) -> Result<(), i32> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let at = offset + done as u64;
        // SAFETY: the kernel reads at most `rest.len()` bytes at `rest`.
        let ret = unsafe { syscall!(libc::SYS_pwrite64, fd, rest.as_ptr(), rest.len(), at) };
        match ret {
            0 => return Err(libc::ENOSPC),
            n if n > 0 => done += n as usize,
            n if n == sys::err(libc::EINTR) => {}
            n => return Err(-n as i32),
        }
    }
    Ok(())
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
