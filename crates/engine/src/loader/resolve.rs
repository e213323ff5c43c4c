//! From the path that exec is given to the ELF file that really runs.
//!
//! Does what the kernel checks before the point of no return, so that a guest's execve can fail
//! as it would natively. Keeps the open file and its first page: nothing is looked up or read twice.

use std::cell::OnceCell;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::LoadError;
use super::script::shebang;
use crate::memory::FileIdentity;
use crate::memory::file::{self, FileStat};
use crate::{sys, syscall};

/// As many scripts may be each other's interpreters.
const MOST_SCRIPTS: usize = 5;

/// An open file that may be executed.
#[derive(Debug)]
pub struct Executable {
    pub fd: OwnedFd,
    /// As it was looked up, for messages.
    pub path: PathBuf,
    pub identity: FileIdentity,
    /// Permission bits and file type.
    pub mode: u32,
    /// The file's first 4096 bytes, or all of it.
    pub head: Vec<u8>,
}

/// What exec of some path really runs.
#[derive(Debug)]
pub struct Resolved {
    pub exe: Executable,
    /// Arguments, rewritten for scripts.
    pub argv: Vec<CString>,
    /// The path that was asked for (AT_EXECFN).
    pub execfn: CString,
    /// The interpreter that the ELF file names, once it was opened.
    pub(super) interpreter: OnceCell<Executable>,
}

impl Resolved {
    /// The executable's absolute path, as `/proc/self/exe` shows it.
    pub fn exe_path(&self) -> PathBuf {
        self.exe.real_path()
    }
}

/// Finds out what running `path` means. The path is taken as it is, without a search in PATH.
pub fn resolve(path: &CStr, argv: &[CString]) -> Result<Resolved, LoadError> {
    resolve_at(libc::AT_FDCWD, path, 0, argv)
}

/// The same for execveat: `path` is relative to `dir`; `flags` may hold AT_EMPTY_PATH and
/// AT_SYMLINK_NOFOLLOW.
pub fn resolve_at(
    dir: RawFd,
    path: &CStr,
    flags: i32,
    argv: &[CString],
) -> Result<Resolved, LoadError> {
    // The name under which a descriptor's script is found again, as the kernel makes it.
    let execfn = match path.to_bytes() {
        name if dir == libc::AT_FDCWD || name.first() == Some(&b'/') => path.to_owned(),
        [] => fd_name(dir, b""),
        name => fd_name(dir, name),
    };
    let mut exe = Executable::open(dir, path, flags)?;
    let mut argv = argv.to_vec();
    if argv.is_empty() {
        argv.push(CString::default());
    }
    let mut script = execfn.clone();
    for _ in 0..=MOST_SCRIPTS {
        if exe.head.starts_with(b"\x7fELF") {
            return Ok(Resolved {
                exe,
                argv,
                execfn,
                interpreter: OnceCell::new(),
            });
        }
        let Some(line) = shebang(&exe.head) else {
            return Err(LoadError::NotElf { path: exe.path });
        };
        // Neither holds a NUL: the line was cut there.
        let owned = |s: &[u8]| CString::new(s).unwrap_or_default();
        let interpreter = owned(line.interpreter);
        let added = [
            Some(interpreter.clone()),
            line.argument.map(owned),
            Some(script),
        ];
        argv.splice(0..1, added.into_iter().flatten());
        exe = match Executable::open(libc::AT_FDCWD, &interpreter, 0) {
            Err(LoadError::Open {
                path: interpreter,
                errno,
            }) => {
                return Err(LoadError::Interpreter {
                    path: exe.path,
                    interpreter,
                    errno,
                });
            }
            opened => opened?,
        };
        script = interpreter;
    }
    Err(LoadError::TooManyScripts {
        path: path_of(&execfn),
    })
}

fn fd_name(dir: RawFd, name: &[u8]) -> CString {
    let mut path = format!("/dev/fd/{dir}").into_bytes();
    if !name.is_empty() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    CString::new(path).unwrap_or_default()
}

fn path_of(path: &CStr) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path.to_bytes()))
}

impl Executable {
    /// Opens a file for execution.
    fn open(dir: RawFd, path: &CStr, flags: i32) -> Result<Executable, LoadError> {
        let failed = |errno| LoadError::open(&path_of(path), errno);
        let fd = match open_fd(dir, path, flags) {
            Err(libc::EACCES) if may_execute(dir, path, flags) => {
                return Err(LoadError::Unreadable {
                    path: path_of(path),
                });
            }
            opened => opened.map_err(failed)?,
        };
        let stat = file::stat(fd.as_raw_fd()).map_err(failed)?;
        if !stat.is_regular() || !may_execute(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH) {
            return Err(failed(libc::EACCES));
        }
        Executable::with(fd, path, stat).map_err(failed)
    }

    /// Opens the interpreter that the ELF file `program` names.
    pub(super) fn open_interpreter(path: &CStr, program: &Path) -> Result<Executable, LoadError> {
        let failed = |errno| LoadError::Interpreter {
            path: program.to_owned(),
            interpreter: path_of(path),
            errno,
        };
        let fd = open_fd(libc::AT_FDCWD, path, 0).map_err(failed)?;
        let stat = file::stat(fd.as_raw_fd()).map_err(failed)?;
        if !stat.is_regular() || stat.mode & 0o111 == 0 {
            return Err(failed(libc::EACCES));
        }
        Executable::with(fd, path, stat).map_err(failed)
    }

    fn with(fd: OwnedFd, path: &CStr, stat: FileStat) -> Result<Executable, i32> {
        let mut head = vec![0; 4096];
        let n = file::read_at(fd.as_raw_fd(), &mut head, 0)?;
        head.truncate(n);
        Ok(Executable {
            fd,
            path: path_of(path),
            identity: stat.identity,
            mode: stat.mode,
            head,
        })
    }

    /// Absolute path without symbolic links, as the kernel sees it now.
    pub fn real_path(&self) -> PathBuf {
        let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let real = std::fs::read_link(link).or_else(|_| std::fs::canonicalize(&self.path));
        real.unwrap_or_else(|_| self.path.clone())
    }
}

fn open_fd(dir: RawFd, path: &CStr, flags: i32) -> Result<OwnedFd, i32> {
    // A FIFO must not make us wait; it is refused afterwards.
    let mut mode = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    if flags & libc::AT_SYMLINK_NOFOLLOW != 0 {
        mode |= libc::O_NOFOLLOW;
    }
    let by_fd = flags & libc::AT_EMPTY_PATH != 0 && path.is_empty();
    // A descriptor may have been opened with O_PATH: open what it stands for anew.
    let link = by_fd.then(|| CString::new(format!("/proc/self/fd/{dir}")).unwrap_or_default());
    let path = link.as_deref().unwrap_or(path);
    // SAFETY: the kernel reads a string that ends with NUL.
    let open = || unsafe { syscall!(libc::SYS_openat, dir, path.as_ptr(), mode, 0) };
    let mut ret = open();
    if ret == sys::err(libc::EMFILE) {
        // The kernel needs no descriptor to execute a file.
        ret = beyond_the_limit(open);
    }
    if sys::is_err(ret) {
        return Err(-ret as i32);
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(ret as RawFd) })
}

/// Makes a call while the soft limit on open files is as high as the hard one.
fn beyond_the_limit(call: impl FnOnce() -> i64) -> i64 {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes one rlimit, two u64.
    unsafe { syscall!(libc::SYS_getrlimit, libc::RLIMIT_NOFILE, limit.as_mut_ptr()) };
    let raised = [limit[1]; 2];
    // SAFETY: the kernel reads one rlimit; the guest doesn't run meanwhile.
    unsafe { syscall!(libc::SYS_setrlimit, libc::RLIMIT_NOFILE, raised.as_ptr()) };
    let ret = call();
    // SAFETY: as above.
    unsafe { syscall!(libc::SYS_setrlimit, libc::RLIMIT_NOFILE, limit.as_ptr()) };
    ret
}

/// May the effective user execute it? Also no on file systems mounted `noexec`.
fn may_execute(dir: RawFd, path: &CStr, flags: i32) -> bool {
    let follow = flags & (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) | libc::AT_EACCESS;
    // SAFETY: the kernel reads a string that ends with NUL.
    let ret = unsafe { syscall!(libc::SYS_faccessat2, dir, path.as_ptr(), libc::X_OK, follow) };
    if ret != sys::err(libc::ENOSYS) && ret != sys::err(libc::EPERM) {
        return ret == 0;
    }
    // Before Linux 5.8, and where a container's filter doesn't know the call.
    let link = path
        .is_empty()
        .then(|| CString::new(format!("/proc/self/fd/{dir}")));
    let link = link.and_then(Result::ok);
    let path = link.as_deref().unwrap_or(path);
    // SAFETY: as above.
    unsafe { syscall!(libc::SYS_faccessat, dir, path.as_ptr(), libc::X_OK) == 0 }
}
