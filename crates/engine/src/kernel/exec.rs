//! exec: the file is checked as the kernel would, then clew starts itself in its place.
//!
//! The new process has the guest's own argv (so `ps` shows the truth) and environment plus the
//! variable of [`crate::handover`]. Scripts are resolved here, so errors come back to the caller.
//!
//! What differs from a native exec: set-user-ID programs run without their privileges (a line says
//! so); executables for other machines fail with ENOEXEC (a line says so; 32-bit code can't be
//! translated, and running it outside the engine would break the promise that every descendant
//! runs under it); a file that may be executed but not read fails with EACCES.

use std::ffi::{CStr, CString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::table::Args;
use super::{Outcome, descriptors, procfs, stop};
use crate::executor::Executor;
use crate::guest::access;
use crate::handover::Handover;
use crate::loader::{self, LoadError, Resolved};
use crate::lockstep;
use crate::program::{Options, RecordOptions};
use crate::sys::{self, err};
use crate::syscall;

/// Everything that the new process gets, ready for the kernel.
pub struct Plan {
    argv: Vec<u64>,
    envp: Vec<u64>,
    /// What pointers in `argv` and `envp` may lead to, besides the guest's own strings.
    _owned: Vec<CString>,
}

pub fn execve(ex: &mut Executor, a: Args) -> Outcome {
    exec(ex, libc::AT_FDCWD, a[0], a[1], a[2], 0)
}

pub fn execveat(ex: &mut Executor, a: Args) -> Outcome {
    let flags = a[4] as i32;
    if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) != 0 {
        return Outcome::Return(err(libc::EINVAL));
    }
    if ex.kernel.own.hidden.contains(a[0] as i32) {
        return Outcome::Return(err(libc::EBADF));
    }
    exec(ex, a[0] as i32, a[1], a[2], a[3], flags)
}

fn exec(ex: &mut Executor, dir: i32, path: u64, argv: u64, envp: u64, flags: i32) -> Outcome {
    match prepare(ex, dir, path, argv, envp, flags) {
        Ok(passed) => {
            let outcome = start(ex);
            // Still here: it failed, or a signal comes first.
            if passed >= 0 {
                descriptors::close(passed);
            }
            ex.kernel.plan = None;
            outcome
        }
        Err(errno) => Outcome::Return(err(errno)),
    }
}

/// Checks the file and makes the plan. Returns the descriptor that is passed on, or -1.
fn prepare(
    ex: &mut Executor,
    dir: i32,
    path: u64,
    argv: u64,
    envp: u64,
    flags: i32,
) -> Result<i32, i32> {
    // Everything made here is dropped, or in the plan, before the call that doesn't return.
    let asked = access::read_cstr(path, libc::PATH_MAX as usize).map_err(|_| libc::EFAULT)?;
    if asked.len() >= libc::PATH_MAX as usize {
        return Err(libc::ENAMETOOLONG);
    }
    // Its own `/proc/self/exe` is clew's to the kernel; the name stays what the guest said.
    let own_exe = procfs::exec_path(ex, dir as u64, path);
    let is_own_exe = own_exe.is_some();
    let asked = CString::new(asked).map_err(|_| libc::EINVAL)?;
    let given = match own_exe {
        Some(path) => CString::new(path).map_err(|_| libc::EINVAL)?,
        None => asked.clone(),
    };
    if given.is_empty() && flags & libc::AT_EMPTY_PATH == 0 {
        return Err(libc::ENOENT);
    }
    let argv = strings(argv)?;
    let found = loader::resolve_at(dir, &given, flags, &argv)
        .and_then(|found| loader::check(&found).map(|()| found))
        .map_err(|error| {
            if matches!(error, LoadError::Bits32 { .. } | LoadError::Machine { .. }) {
                stop::warn(&error.to_string());
            }
            error.errno()
        })?;
    let by_descriptor = dir != libc::AT_FDCWD && !given.to_bytes().starts_with(b"/");
    let is_script = !is_same(&found.exe.path, &given);
    if by_descriptor && is_script && closes_on_exec(dir) {
        // The interpreter couldn't open the script.
        return Err(libc::ENOENT);
    }
    warn_privileged(&found);

    let passed = if by_descriptor && !is_script {
        keep_open(found.exe.fd.as_raw_fd())?
    } else {
        -1
    };
    let exe = CString::new(found.exe.path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    ex.count_ticks();
    ex.kernel.own.tsc_faults = ex.current().tsc_faults;
    ex.kernel.own.rules = ex.current().rules.clone();
    let variable = Handover {
        options: options_after_exec(ex),
        exe,
        execfn: if is_own_exe { asked } else { found.execfn },
        exe_fd: passed,
        own: ex.kernel.own.clone(),
        stats: ex.stats.clone(),
    }
    .encode();
    match plan(found.argv, envp, variable) {
        Ok(plan) => {
            ex.kernel.plan = Some(plan);
            Ok(passed)
        }
        Err(errno) => {
            if passed >= 0 {
                descriptors::close(passed);
            }
            Err(errno)
        }
    }
}

/// The options of the new process: it begins a stream after this one.
fn options_after_exec(ex: &mut Executor) -> Options {
    let mut options = lockstep::options_after_exec(ex);
    let stream = ex.stream_after_exec();
    options.record = match (options.record, &ex.recorder, stream) {
        (Some(record), Some(recorder), Some(stream)) => Some(RecordOptions {
            // A vfork child's stream is its parent's, which goes on.
            before: if ex.kernel.own.in_vfork {
                0
            } else {
                recorder.stream()
            },
            stream,
            first: recorder.is_first() && !ex.kernel.own.in_vfork,
            ..record
        }),
        // Nothing is recorded any more.
        _ => None,
    };
    options
}

fn is_same(path: &Path, given: &CStr) -> bool {
    path.as_os_str().as_bytes() == given.to_bytes()
}

/// A copy of a descriptor that stays open across the exec.
fn keep_open(fd: i32) -> Result<i32, i32> {
    // SAFETY: F_DUPFD touches no memory.
    let copy = unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_DUPFD, 3) };
    if sys::is_err(copy) {
        Err(-copy as i32)
    } else {
        Ok(copy as i32)
    }
}

/// Tells about a program that would natively run with other privileges.
pub fn warn_privileged(found: &Resolved) {
    let Ok(meta) = found.exe.path.metadata() else {
        return;
    };
    let group = libc::S_ISGID | libc::S_IXGRP;
    // SAFETY: geteuid and getegid touch no memory.
    let (user, own_group) = unsafe { (syscall!(libc::SYS_geteuid), syscall!(libc::SYS_getegid)) };
    let by_user = meta.mode() & libc::S_ISUID != 0 && meta.uid() as i64 != user;
    let by_group = meta.mode() & group == group && meta.gid() as i64 != own_group;
    if by_user || by_group {
        stop::warn(&format!(
            "{} runs without its set-user-ID or set-group-ID privileges under clew",
            found.exe.path.display()
        ));
    }
}

fn plan(argv: Vec<CString>, envp: u64, variable: CString) -> Result<Plan, i32> {
    let mut owned = argv;
    let mut args: Vec<u64> = owned.iter().map(|s| s.as_ptr() as u64).collect();
    args.push(0);
    let mut env = pointers(envp)?;
    env.push(variable.as_ptr() as u64);
    env.push(0);
    owned.push(variable);
    Ok(Plan {
        argv: args,
        envp: env,
        _owned: owned,
    })
}

/// The guest's strings behind a NULL-terminated array.
fn strings(array: u64) -> Result<Vec<CString>, i32> {
    /// The kernel's bound on one string.
    const LONGEST: usize = 128 << 10;
    let mut all = Vec::new();
    for pointer in pointers(array)? {
        let bytes = access::read_cstr(pointer, LONGEST).map_err(|_| libc::EFAULT)?;
        if bytes.len() == LONGEST {
            return Err(libc::E2BIG);
        }
        all.push(CString::new(bytes).map_err(|_| libc::EFAULT)?);
    }
    Ok(all)
}

/// A NULL-terminated array of the guest's, without its end; a NULL pointer is an empty one.
fn pointers(array: u64) -> Result<Vec<u64>, i32> {
    let mut all = Vec::new();
    if array == 0 {
        return Ok(all);
    }
    loop {
        let at = array + 8 * all.len() as u64;
        match access::read::<u64>(at).map_err(|_| libc::EFAULT)? {
            0 => return Ok(all),
            pointer => all.push(pointer),
        }
        // The kernel's own bound.
        if all.len() > 0x7fff_ffff {
            return Err(libc::E2BIG);
        }
    }
}

/// Replaces the process; returns only if that fails.
fn start(ex: &mut Executor) -> Outcome {
    ex.save_code();
    lockstep::finish(ex);
    ex.record_exec();
    let Some(plan) = &ex.kernel.plan else {
        return Outcome::Return(err(libc::EINVAL));
    };
    let (argv, envp) = (plan.argv.as_ptr() as u64, plan.envp.as_ptr() as u64);
    let itself = ex.kernel.own.hidden.itself;
    if itself >= 0 {
        let (dir, flags) = (itself as u64, libc::AT_EMPTY_PATH as u64);
        let path = c"".as_ptr() as u64;
        ex.call_exec(libc::SYS_execveat, [dir, path, argv, envp, flags, 0])
    } else {
        let path = c"/proc/self/exe".as_ptr() as u64;
        ex.call_exec(libc::SYS_execve, [path, argv, envp, 0, 0, 0])
    }
}

fn closes_on_exec(fd: i32) -> bool {
    // SAFETY: F_GETFD touches no memory.
    let flags = unsafe { syscall!(libc::SYS_fcntl, fd, libc::F_GETFD) };
    flags as i32 & libc::FD_CLOEXEC != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pointers: &[u64]) -> Vec<&str> {
        let (end, all) = pointers.split_last().unwrap();
        assert_eq!(*end, 0);
        all.iter()
            // SAFETY: the plan under test is alive.
            .map(|&p| unsafe { CStr::from_ptr(p as *const _) })
            .map(|s| s.to_str().unwrap())
            .collect()
    }

    #[test]
    fn the_variable_comes_last_even_in_an_empty_environment() {
        let argv = vec![c"name".to_owned(), c"a b".to_owned()];
        let plan = plan(argv, 0, c"CLEW_ENGINE=1".to_owned()).unwrap();
        assert_eq!(shown(&plan.argv), ["name", "a b"]);
        assert_eq!(shown(&plan.envp), ["CLEW_ENGINE=1"]);
    }

    #[test]
    fn bad_arrays_fault() {
        assert_eq!(pointers(8), Err(libc::EFAULT));
        assert_eq!(pointers(0), Ok(vec![]));
    }
}
