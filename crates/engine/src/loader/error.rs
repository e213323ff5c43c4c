//! What can go wrong between a path and a running guest.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::elf::Problem;
use crate::memory::MapError;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file can't be opened or executed.
    #[error("{}: {}", .path.display(), describe(*.errno))]
    Open { path: PathBuf, errno: i32 },
    /// May be executed, but not read, which translating it needs.
    #[error("{}: may be executed but not read; clew must read a program to run it", .path.display())]
    Unreadable { path: PathBuf },
    #[error("{}: neither an ELF program nor a script with a #! line", .path.display())]
    NotElf { path: PathBuf },
    #[error("{}: a 32-bit program; clew runs 64-bit x86 programs only", .path.display())]
    Bits32 { path: PathBuf },
    #[error("{}: a program for {}; clew runs x86-64 programs only", .path.display(), machine_name(*.machine))]
    Machine { path: PathBuf, machine: u16 },
    #[error("{}: corrupt ELF file: {what}", .path.display())]
    Corrupt { path: PathBuf, what: &'static str },
    #[error(
        "{}: needs the interpreter {}: {}; install it (it is part of the C library the program \
         was built for)", .path.display(), .interpreter.display(), describe(*.errno)
    )]
    Interpreter {
        path: PathBuf,
        interpreter: PathBuf,
        errno: i32,
    },
    #[error("{}: too many levels of #! scripts", .path.display())]
    TooManyScripts { path: PathBuf },
    #[error(
        "{}: wants to be loaded at {:#x}..{:#x}, where clew itself lives; link it as a \
         position-independent executable (-pie) or at another address",
        .path.display(), .range.start, .range.end
    )]
    Place { path: PathBuf, range: Range<u64> },
    #[error("arguments and environment are longer than the stack limit allows (see ulimit -s)")]
    ArgumentsTooLong,
    #[error("{}: not enough memory to load it (see ulimit -v)", .path.display())]
    OutOfMemory { path: PathBuf },
    #[error("{}: can't be mapped: {}", .path.display(), describe(*.errno))]
    Map { path: PathBuf, errno: i32 },
}

impl LoadError {
    /// What a guest's execve would return.
    pub fn errno(&self) -> i32 {
        match self {
            LoadError::Open { errno, .. } | LoadError::Map { errno, .. } => *errno,
            LoadError::Interpreter { errno, .. } => *errno,
            LoadError::Unreadable { .. } => libc::EACCES,
            LoadError::NotElf { .. }
            | LoadError::Bits32 { .. }
            | LoadError::Machine { .. }
            | LoadError::Corrupt { .. } => libc::ENOEXEC,
            LoadError::TooManyScripts { .. } => libc::ELOOP,
            LoadError::Place { .. } | LoadError::OutOfMemory { .. } => libc::ENOMEM,
            LoadError::ArgumentsTooLong => libc::E2BIG,
        }
    }

    /// The shell's exit status for it: 127 if there is no such program, else 126.
    pub fn exit_status(&self) -> i32 {
        match self {
            LoadError::Open {
                errno: libc::ENOENT | libc::ENOTDIR,
                ..
            } => 127,
            LoadError::Interpreter {
                errno: libc::ENOENT,
                ..
            } => 127,
            _ => 126,
        }
    }

    pub(super) fn open(path: &Path, errno: i32) -> LoadError {
        LoadError::Open {
            path: path.to_owned(),
            errno,
        }
    }

    pub(super) fn problem(path: &Path, problem: Problem) -> LoadError {
        let path = path.to_owned();
        match problem {
            Problem::NotElf => LoadError::NotElf { path },
            Problem::Bits32 => LoadError::Bits32 { path },
            Problem::Machine(machine) => LoadError::Machine { path, machine },
            Problem::Corrupt(what) => LoadError::Corrupt { path, what },
        }
    }

    pub(super) fn memory(path: &Path, error: &MapError) -> LoadError {
        let path = path.to_owned();
        match error {
            MapError::Engine(range) => LoadError::Place {
                path,
                range: range.clone(),
            },
            MapError::Errno(libc::ENOMEM | libc::EAGAIN) => LoadError::OutOfMemory { path },
            MapError::Errno(errno) => LoadError::Map {
                path,
                errno: *errno,
            },
        }
    }
}

/// The C library's words for an errno, without Rust's "(os error 2)".
fn describe(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.rfind(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn machine_name(machine: u16) -> String {
    let known = match machine {
        2 | 18 | 43 => "SPARC",
        8 => "MIPS",
        20 | 21 => "PowerPC",
        22 => "s390",
        40 => "32-bit ARM",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => return format!("machine type {machine}"),
    };
    known.to_owned()
}
