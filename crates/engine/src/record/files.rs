//! Copies of the files that a recorded program maps.
//!
//! In: an open file. Out: a descriptor of a copy that nobody changes, and its name in the
//! recording's folder `files`. The guest maps the copy.
//!
//! A copy is named after the file's identity and change times, so a second process of the recording
//! finds it with one open. Recordings beside each other share copies by hard links to a folder
//! `pool`; one that has but one link left is nobody's any more. A file that was changed just now
//! could be changed again within the same tick of the file system's clock: its copy gets a name of
//! its own and is never found again. One that was changed a moment ago is shared within the
//! recording only.
//!
//! The folder is reached by a descriptor, since the guest may leave its root.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use clew_recording::tail::{self, PartId};

use crate::kernel::file_size_limit;
use crate::memory::file::{self, FileStat};
use crate::sys;
use crate::syscall;

/// The folder of copies in a recording.
pub const FOLDER: &str = "files";
/// The folder of copies beside the recordings.
pub const POOL: &str = "pool";
const POOL_FROM_FOLDER: &std::ffi::CStr = c"../../pool";

/// Changed so lately that it may change again without its times telling: where times are fine, and
/// where they aren't.
const FRESH_NS: i64 = 20_000_000;
const YOUNG_NS: i64 = 2_000_000_000;
/// Larger files are copied in parts, unless the file system shares their blocks.
const LARGE: u64 = 256 << 20;
const FICLONE: u64 = 0x4004_9409;

/// The folder of copies.
#[derive(Debug)]
pub struct Files {
    folder: i32,
    /// The last copy with a name of its own.
    last: Option<(FileStat, String)>,
}

/// What a mapping shows of a file.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub offset: u64,
    pub len: u64,
    /// It is an image's, whose other parts will be mapped too.
    pub image: Image,
}

/// Is the mapping part of an image?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    No,
    /// Its first.
    First,
    /// Another; all parts come from one copy.
    More,
}

/// A copy, open for reading.
#[derive(Debug)]
pub struct Copied {
    pub fd: OwnedFd,
    pub name: String,
    /// All of the file is in it.
    pub whole: bool,
}

/// A state that is being written.
pub struct NewState {
    folder: i32,
    new: String,
    name: String,
}

impl NewState {
    /// It is whole: from now on it is there.
    pub fn finish(self) {
        let (Ok(from), Ok(to)) = (
            CString::new(self.new.as_str()),
            CString::new(self.name.as_str()),
        ) else {
            return;
        };
        let folder = self.folder;
        // SAFETY: two paths that live long enough.
        unsafe {
            syscall!(
                libc::SYS_renameat,
                folder,
                from.as_ptr(),
                folder,
                to.as_ptr()
            )
        };
    }

    /// It won't be whole.
    pub fn give_up(self) {
        if let Ok(new) = CString::new(self.new.as_str()) {
            // SAFETY: a path that lives long enough.
            unsafe { syscall!(libc::SYS_unlinkat, self.folder, new.as_ptr(), 0) };
        }
    }
}

/// Makes the folder of copies in a recording's folder, and where wanted the pool beside it; a
/// descriptor that stays open at an exec.
pub fn prepare(recording: &Path, pool: bool) -> io::Result<OwnedFd> {
    let make = |path: &Path| match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    let folder = recording.join(FOLDER);
    make(&folder)?;
    if pool && let Some(beside) = recording.parent() {
        make(&beside.join(POOL))?;
    }
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(folder)?;
    let opened = OwnedFd::from(opened);
    // SAFETY: clears the flag of a descriptor of ours.
    unsafe { syscall!(libc::SYS_fcntl, opened.as_raw_fd(), libc::F_SETFD, 0) };
    Ok(opened)
}

/// Removes copies from a pool that no recording has, and what was left unfinished for long. How
/// many bytes that was.
pub fn sweep(pool: &Path) -> io::Result<u64> {
    let mut freed = 0;
    for entry in std::fs::read_dir(pool)? {
        let path = entry?.path();
        let Ok(meta) = path.symlink_metadata() else {
            continue;
        };
        let age = meta.modified().ok().and_then(|t| t.elapsed().ok());
        let idle = age.is_some_and(|age| age.as_secs() > 600);
        // A fresh one may be about to be linked.
        if meta.is_file() && meta.nlink() == 1 && idle && std::fs::remove_file(&path).is_ok() {
            freed += meta.len();
        }
    }
    Ok(freed)
}

impl Files {
    /// Copies go to the folder that `folder`, a descriptor, has open.
    pub fn new(folder: i32) -> Files {
        Files { folder, last: None }
    }

    pub fn set_folder(&mut self, folder: i32) {
        self.folder = folder;
    }

    /// A copy of the file for a mapping. The error is an errno; the caller does without.
    pub fn copy(&mut self, fd: i32, stat: &FileStat, part: Part) -> Result<Copied, i32> {
        if part.image == Image::More
            && let Some((last, name)) = &self.last
            && (last.identity, last.ctime_ns) == (stat.identity, stat.ctime_ns)
        {
            return self.open(name);
        }
        let age = age(stat);
        if age == Age::Fresh {
            return self.own_copy(fd, stat, part);
        }
        let name = name_of(stat);
        match self.open(&name) {
            Err(libc::ENOENT) => {}
            found => return found,
        }
        if age == Age::Old
            && let Ok(pool) = self.pool()
        {
            let pool = pool.as_raw_fd();
            let mut linked = link(pool, &name, self.folder, &name);
            if linked == Err(libc::ENOENT) {
                if !make(pool, &name, fd, stat, part)? {
                    return self.own_copy(fd, stat, part);
                }
                linked = link(pool, &name, self.folder, &name);
            }
            // Otherwise so many recordings have it that it can't have another name.
            if matches!(linked, Ok(()) | Err(libc::EEXIST)) {
                return self.open(&name);
            }
        }
        if !make(self.folder, &name, fd, stat, part)? {
            return self.own_copy(fd, stat, part);
        }
        self.open(&name)
    }

    /// A copy for this one use: what the file has now, or the part of it if it is large. Its length
    /// is the file's.
    pub fn own_copy(&mut self, fd: i32, stat: &FileStat, part: Part) -> Result<Copied, i32> {
        let name = format!("{}-{}", name_of(stat), unique());
        let temporary = Temporary::new(self.folder, stat.identity.size)?;
        let to = temporary.fd.as_raw_fd();
        let mut whole = true;
        if !clone(fd, to) {
            let size = stat.identity.size;
            let mut wanted = 0..size;
            if is_large(stat, part) {
                whole = false;
                wanted = part.offset.min(size)..part.offset.saturating_add(part.len).min(size);
            }
            copy_part(fd, to, wanted, size)?;
        }
        temporary.rename(&name)?;
        if part.image != Image::No {
            self.last = Some((*stat, name.clone()));
        }
        self.open(&name).map(|copied| Copied { whole, ..copied })
    }

    /// A copy that was made before. The error is an errno.
    pub fn reopen(&self, name: &str) -> Result<OwnedFd, i32> {
        self.open(name).map(|copied| copied.fd)
    }

    /// A new file for the state that a part of a stream begins with, and how it gets its name once it is whole.
    pub fn new_state(&self, part: PartId) -> Result<(OwnedFd, NewState), i32> {
        let name = format!("{}/{}", tail::FOLDER, part.state());
        let new = format!("{name}.new");
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
        let fd = open_at(self.folder, &new, flags, 0o600)?;
        let state = NewState {
            folder: self.folder,
            new,
            name,
        };
        Ok((fd, state))
    }

    fn open(&self, name: &str) -> Result<Copied, i32> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let fd = open_at(self.folder, name, flags, 0)?;
        Ok(Copied {
            fd,
            name: name.to_owned(),
            whole: true,
        })
    }

    /// The pool, if there is one that only this user can write to.
    fn pool(&self) -> Result<OwnedFd, i32> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let path = POOL_FROM_FOLDER.as_ptr();
        // SAFETY: opens a constant path.
        let fd = unsafe { syscall!(libc::SYS_openat, self.folder, path, flags) };
        let pool = owned(fd)?;
        let stat = file::stat(pool.as_raw_fd())?;
        // SAFETY: geteuid touches no memory.
        let me = unsafe { syscall!(libc::SYS_geteuid) };
        if stat.mode & 0o022 != 0 || stat.uid as i64 != me {
            return Err(libc::EPERM);
        }
        Ok(pool)
    }
}

/// Makes the copy `name` in `folder`. False if the file can't be shared under that name: it is
/// large, or changed meanwhile.
fn make(folder: i32, name: &str, fd: i32, stat: &FileStat, part: Part) -> Result<bool, i32> {
    let temporary = Temporary::new(folder, stat.identity.size)?;
    let to = temporary.fd.as_raw_fd();
    if !clone(fd, to) {
        if is_large(stat, part) {
            return Ok(false);
        }
        copy_part(fd, to, 0..stat.identity.size, stat.identity.size)?;
    }
    let now = file::stat(fd)?;
    if (now.identity, now.ctime_ns) != (stat.identity, stat.ctime_ns) {
        return Ok(false);
    }
    temporary.rename(name)?;
    Ok(true)
}

/// Is only the part that is mapped to be copied?
fn is_large(stat: &FileStat, part: Part) -> bool {
    part.image == Image::No && stat.identity.size > LARGE
}

/// A file under construction, removed unless it is given its name.
struct Temporary {
    folder: i32,
    name: String,
    fd: OwnedFd,
    named: bool,
}

impl Temporary {
    fn new(folder: i32, size: u64) -> Result<Temporary, i32> {
        // The guest's limit must not make the kernel send a signal for a file of ours.
        if size > file_size_limit() {
            return Err(libc::EFBIG);
        }
        let name = format!("tmp-{}", unique());
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let fd = open_at(folder, &name, flags, 0o400)?;
        // SAFETY: sets the mode of a file of ours, which the guest's umask may have made smaller.
        unsafe { syscall!(libc::SYS_fchmod, fd.as_raw_fd(), 0o400) };
        Ok(Temporary {
            folder,
            name,
            fd,
            named: false,
        })
    }

    /// Another process may have made the same: then one takes the other's place.
    fn rename(mut self, name: &str) -> Result<(), i32> {
        let (from, to) = (c_name(&self.name), c_name(name));
        // SAFETY: names that end with NUL.
        let ret = unsafe {
            syscall!(
                libc::SYS_renameat,
                self.folder,
                from.as_ptr(),
                self.folder,
                to.as_ptr()
            )
        };
        self.named = ret == 0;
        answer(ret).map(|_| ())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.named {
            let name = c_name(&self.name);
            // SAFETY: removes a file of ours by name.
            unsafe { syscall!(libc::SYS_unlinkat, self.folder, name.as_ptr(), 0) };
        }
    }
}

/// Gives `to` the blocks of `from`, where the file system can.
fn clone(from: i32, to: i32) -> bool {
    // SAFETY: FICLONE takes a descriptor and touches no memory.
    unsafe { syscall!(libc::SYS_ioctl, to, FICLONE, from) == 0 }
}

/// Copies `part` of a file of `size` bytes; the rest of the copy is a hole.
fn copy_part(from: i32, to: i32, part: std::ops::Range<u64>, size: u64) -> Result<(), i32> {
    // SAFETY: ftruncate touches no memory.
    answer(unsafe { syscall!(libc::SYS_ftruncate, to, size) })?;
    for extent in file::guest_extents(from, part) {
        file::copy_range(from, to, extent)?;
    }
    Ok(())
}

/// How long a file was left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    Fresh,
    Young,
    Old,
}

fn age(stat: &FileStat) -> Age {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    unsafe { syscall!(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut now) };
    let now = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    // A modification time in the future is somebody's wish, and says nothing.
    let changed = stat.ctime_ns.max(stat.identity.mtime_ns.min(now));
    let coarse = stat.ctime_ns % 1_000_000 == 0;
    match now.saturating_sub(changed) {
        YOUNG_NS.. => Age::Old,
        FRESH_NS.. if !coarse => Age::Young,
        _ => Age::Fresh,
    }
}

/// The name of a file's copy.
fn name_of(stat: &FileStat) -> String {
    let id = &stat.identity;
    format!(
        "{:x}-{:x}-{:x}-{:x}-{:x}",
        id.dev, id.ino, id.size, id.mtime_ns as u64, stat.ctime_ns as u64
    )
}

/// Size and time (in nanoseconds) of the file that a copy of this name is of.
pub fn size_and_time(name: &str) -> Option<(u64, i64)> {
    let mut words = name.split('-').skip(2);
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    Some((number()?, number()? as i64))
}

/// A name that no other process of the recording comes up with.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut random = [0u8; 8];
    // SAFETY: the kernel writes at most the buffer's length.
    unsafe { syscall!(libc::SYS_getrandom, random.as_mut_ptr(), random.len(), 0) };
    // SAFETY: getpid touches no memory.
    let pid = unsafe { syscall!(libc::SYS_getpid) };
    format!("{pid:x}-{n:x}-{:x}", u64::from_le_bytes(random))
}

fn c_name(name: &str) -> CString {
    CString::new(name).expect("made of digits and letters")
}

fn open_at(folder: i32, name: &str, flags: i32, mode: u32) -> Result<OwnedFd, i32> {
    let name = c_name(name);
    // SAFETY: opens a name that ends with NUL.
    owned(unsafe { syscall!(libc::SYS_openat, folder, name.as_ptr(), flags, mode) })
}

fn owned(fd: i64) -> Result<OwnedFd, i32> {
    let fd = answer(fd)?;
    // SAFETY: the descriptor was just made, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn link(from: i32, name: &str, to: i32, as_name: &str) -> Result<(), i32> {
    let (name, as_name) = (c_name(name), c_name(as_name));
    // SAFETY: names that end with NUL.
    let ret = unsafe {
        syscall!(
            libc::SYS_linkat,
            from,
            name.as_ptr(),
            to,
            as_name.as_ptr(),
            0
        )
    };
    answer(ret).map(|_| ())
}

fn answer(ret: i64) -> Result<i64, i32> {
    if sys::is_err(ret) {
        Err(-ret as i32)
    } else {
        Ok(ret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::path::PathBuf;

    /// A folder of recordings, removed at the end.
    struct Recordings(PathBuf);

    impl Recordings {
        fn new(name: &str) -> Recordings {
            let path = std::env::temp_dir().join(format!("clew-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Recordings(path)
        }

        fn recording(&self, name: &str, pool: bool) -> OwnedFd {
            let path = self.0.join(name);
            std::fs::create_dir_all(&path).unwrap();
            prepare(&path, pool).unwrap()
        }

        fn count(&self, folder: &str) -> usize {
            std::fs::read_dir(self.0.join(folder)).unwrap().count()
        }
    }

    impl Drop for Recordings {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn copy(folder: &OwnedFd, file: &File) -> Result<Copied, i32> {
        let stat = file::stat(file.as_raw_fd()).unwrap();
        let mut files = Files::new(folder.as_raw_fd());
        let part = Part {
            offset: 0,
            len: stat.identity.size,
            image: Image::No,
        };
        files.copy(file.as_raw_fd(), &stat, part)
    }

    fn contents(fd: &OwnedFd) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut file = File::from(fd.try_clone().unwrap());
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// A file that has been there for long.
    const OLD: &str = "/bin/sh";

    #[test]
    fn recordings_share_a_copy_of_an_old_file() {
        let all = Recordings::new("share");
        let (one, two) = (all.recording("one", true), all.recording("two", true));
        let file = File::open(OLD).unwrap();
        let first = copy(&one, &file).unwrap();
        let again = copy(&one, &file).unwrap();
        let second = copy(&two, &file).unwrap();
        assert_eq!(contents(&first.fd), std::fs::read(OLD).unwrap());
        let inode = |fd: &OwnedFd| file::stat(fd.as_raw_fd()).unwrap().identity.ino;
        assert_eq!(inode(&first.fd), inode(&again.fd));
        assert_eq!(inode(&first.fd), inode(&second.fd));
        assert_eq!(first.name, second.name);
        assert!(clew_recording::maps::is_name(first.name.as_bytes()));
        let mode = file::stat(first.fd.as_raw_fd()).unwrap().mode;
        assert_eq!(mode & 0o777, 0o400);
        assert_eq!((all.count("pool"), all.count("one/files")), (1, 1));
        // Young ones stay even if nobody has them.
        assert_eq!(sweep(&all.0.join(POOL)).unwrap(), 0);
    }

    #[test]
    fn a_young_file_gets_a_copy_for_each_time() {
        let all = Recordings::new("young");
        let one = all.recording("one", true);
        let path = all.0.join("young");
        std::fs::write(&path, "before").unwrap();
        let mut file = File::options().read(true).write(true).open(&path).unwrap();
        let before = copy(&one, &file).unwrap();
        file.write_all(b"after!").unwrap();
        let after = copy(&one, &file).unwrap();
        assert_eq!(contents(&before.fd), b"before");
        assert_eq!(contents(&after.fd), b"after!");
        assert_ne!(before.name, after.name);
        assert!(clew_recording::maps::is_name(after.name.as_bytes()));
        assert_eq!((all.count("pool"), all.count("one/files")), (0, 2));
        // Parts of an image come from one copy all the same.
        let mut files = Files::new(one.as_raw_fd());
        let stat = file::stat(file.as_raw_fd()).unwrap();
        let mut part = Part {
            offset: 0,
            len: 6,
            image: Image::First,
        };
        let first = files.own_copy(file.as_raw_fd(), &stat, part).unwrap();
        part.image = Image::More;
        let more = files.copy(file.as_raw_fd(), &stat, part).unwrap();
        assert_eq!(first.name, more.name);
        // The guest's position is its own.
        assert_eq!(file.stream_position().unwrap(), 6);
    }

    #[test]
    fn many_copy_the_same_at_once() {
        let all = Recordings::new("many");
        let one = all.recording("one", true);
        let expected = std::fs::read(OLD).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let file = File::open(OLD).unwrap();
                    let copied = copy(&one, &file).unwrap();
                    assert!(contents(&copied.fd) == expected);
                });
            }
        });
        assert_eq!((all.count("pool"), all.count("one/files")), (1, 1));
    }

    #[test]
    fn a_sparse_file_stays_sparse() {
        let all = Recordings::new("sparse");
        let one = all.recording("one", false);
        let path = all.0.join("sparse");
        let file = File::create_new(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        std::os::unix::fs::FileExt::write_at(&file, b"here", 500 << 20).unwrap();
        let file = File::open(&path).unwrap();
        let stat = file::stat(file.as_raw_fd()).unwrap();
        let mut files = Files::new(one.as_raw_fd());
        let part = Part {
            offset: 400 << 20,
            len: 200 << 20,
            image: Image::No,
        };
        let copied = files.copy(file.as_raw_fd(), &stat, part).unwrap();
        let copied = File::from(copied.fd);
        let meta = copied.metadata().unwrap();
        assert_eq!(meta.len(), 1 << 30);
        assert!(meta.blocks() < 10_000);
        let mut bytes = [0; 4];
        std::os::unix::fs::FileExt::read_at(&copied, &mut bytes, 500 << 20).unwrap();
        assert_eq!(&bytes, b"here");
    }

    #[test]
    fn what_cannot_be_written_is_refused_and_leaves_nothing() {
        let all = Recordings::new("refused");
        let one = all.recording("one", false);
        let file = File::open(OLD).unwrap();
        // A limit on file sizes belongs to the process: try it in a child.
        // SAFETY: the child makes system calls and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let limit = libc::rlimit {
                rlim_cur: 4096,
                rlim_max: 4096,
            };
            // SAFETY: sets a limit of the child's.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
            let refused = matches!(copy(&one, &file), Err(libc::EFBIG));
            // SAFETY: ends the child.
            unsafe { libc::_exit(if refused { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(all.count("one/files"), 0);
        let nowhere = OwnedFd::from(File::open("/dev/null").unwrap());
        assert_eq!(copy(&nowhere, &file).unwrap_err(), libc::ENOTDIR);
        let proc = OwnedFd::from(File::open("/proc").unwrap());
        assert!(copy(&proc, &file).is_err());
    }
}
