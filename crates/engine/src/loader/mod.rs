//! Loads a guest as the kernel's exec would.
//!
//! In: a path and arguments. Out: images, vdso and stack in guest memory, and the registers to
//! start with.
//!
//! - [`resolve`](mod@resolve): from a path to the ELF file that really runs (`#!` scripts, permissions)
//! - [`script`]: the `#!` line
//! - [`elf`]: ELF headers to a plan of what to map; pure
//! - [`map`]: carries out the plan
//! - [`stack`]: the bytes of the first stack; pure
//! - [`error`]: what can go wrong, and which errno exec gives for it
//!
//! Headers are taken apart by hand: it takes little code, and the start-up time of every guest
//! process is at stake.

pub mod elf;
pub mod error;
pub mod map;
pub mod resolve;
pub mod script;
pub mod stack;

use std::ffi::CString;
use std::ops::Range;
use std::os::fd::AsRawFd;

pub use error::LoadError;
pub use resolve::{Executable, Resolved, resolve, resolve_at};

use crate::guest::access;
use crate::memory::Memory;
use crate::{sys, syscall, vdso};
use stack::{Auxv, Contents};

/// A loaded guest, ready to run: all other registers are 0.
#[derive(Clone, Debug)]
pub struct Entry {
    pub pc: u64,
    pub sp: u64,
    /// Guest addresses of the argument and environment strings (`/proc/self/cmdline`, `environ`).
    pub args: Range<u64>,
    pub env: Range<u64>,
    /// The auxiliary vector as `/proc/self/auxv` shows it.
    pub auxv: Vec<u8>,
    /// The executable's own entry point (AT_ENTRY) and where its image begins.
    pub exe_entry: u64,
    pub exe_base: u64,
}

/// Finds what would make [`load`] fail for the files' sake: another machine's program, a corrupt
/// one, a missing interpreter. For exec, which must fail before there is no way back.
pub fn check(program: &Resolved) -> Result<(), LoadError> {
    let image = program.exe.parse()?;
    program.interpreter(&image).map(|_| ())
}

/// Maps `program` and its interpreter into (empty) guest memory and builds its stack. `random` is
/// for AT_RANDOM; without it the kernel is asked.
pub fn load(
    memory: &mut Memory,
    program: &Resolved,
    envp: &[CString],
    random: Option<[u8; 16]>,
    portable: bool,
) -> Result<Entry, LoadError> {
    let exe = &program.exe;
    let image = exe.parse()?;
    let interpreter = match program.interpreter(&image)? {
        Some(interp) => Some((interp, interp.parse()?)),
        None => None,
    };
    let limit = crate::memory::stack::stack_limit();
    stack::check_size(&program.argv, envp, limit)?;

    let loaded = map::map_image(memory, exe, &image)?;
    let (pc, at_base) = match &interpreter {
        Some((file, plan)) => {
            let interp = map::map_image(memory, file, plan)?;
            (plan.entry.wrapping_add(interp.bias), interp.bias)
        }
        None => (image.entry.wrapping_add(loaded.bias), 0),
    };
    let no_memory = |e: crate::memory::MapError| LoadError::memory(&exe.path, &e);
    let sysinfo = memory.map_vdso(&vdso::IMAGE).map_err(no_memory)?;

    let exe_entry = image.entry.wrapping_add(loaded.bias);
    let contents = Contents {
        argv: &program.argv,
        envp,
        execfn: &program.execfn,
        random: random.unwrap_or_else(random_bytes),
        auxv: Auxv {
            sysinfo,
            phdr: image.phdr.map_or(0, |p| p.wrapping_add(loaded.bias)),
            phnum: image.phnum as u64,
            base: at_base,
            entry: exe_entry,
            host: stack::HostValues::ask(portable),
        },
    };
    let stack = stack::build(crate::layout::STACK_TOP, &contents);
    let mut prot = libc::PROT_READ | libc::PROT_WRITE;
    if image.exec_stack {
        prot |= libc::PROT_EXEC;
    }
    let size = stack.bytes.len() as u64 + stack::SPARE;
    memory.map_stack(size, prot, limit).map_err(no_memory)?;
    access::note_write(stack.sp, stack.bytes.len() as u64);
    // SAFETY: the top of the stack was just mapped writable, `bytes.len()` and more below its end.
    unsafe {
        let to = stack.sp as *mut u8;
        std::ptr::copy_nonoverlapping(stack.bytes.as_ptr(), to, stack.bytes.len());
    }
    memory.log_contents(stack.sp..stack.sp + stack.bytes.len() as u64);
    Ok(Entry {
        pc,
        sp: stack.sp,
        args: stack.args,
        env: stack.env,
        auxv: stack.auxv,
        exe_entry,
        exe_base: loaded.base,
    })
}

fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    // SAFETY: the kernel writes at most 16 bytes at `bytes`.
    let ret = unsafe { syscall!(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    if sys::is_err(ret) {
        // Only kernels before 3.17: the bytes that our own exec got are as good.
        // SAFETY: AT_RANDOM, where present, is the address of 16 bytes.
        unsafe {
            let ours = libc::getauxval(libc::AT_RANDOM) as *const [u8; 16];
            if !ours.is_null() {
                bytes = ours.read();
            }
        }
    }
    bytes
}

impl Resolved {
    /// The interpreter that `image`, the plan of the executable, names. Opened once.
    fn interpreter(&self, image: &elf::Image) -> Result<Option<&Executable>, LoadError> {
        let Some(part) = &image.interpreter else {
            return Ok(None);
        };
        if let Some(opened) = self.interpreter.get() {
            return Ok(Some(opened));
        }
        let path = self.exe.read_interpreter_path(part)?;
        let opened = Executable::open_interpreter(&path, &self.exe.path)?;
        Ok(Some(self.interpreter.get_or_init(|| opened)))
    }
}

impl Executable {
    /// The plan for this file, with the file's name in errors.
    fn parse(&self) -> Result<elf::Image, LoadError> {
        let problem = |p| LoadError::problem(&self.path, p);
        let header = elf::header(&self.head).map_err(problem)?;
        let table = self.read_part(&header.program_headers())?;
        elf::plan(&header, &table, self.identity.size).map_err(problem)
    }

    /// Bytes of the file, from its head if they are there. A short file gives fewer.
    fn read_part(&self, part: &Range<u64>) -> Result<Vec<u8>, LoadError> {
        let (start, end) = (part.start as usize, part.end as usize);
        if let Some(bytes) = self.head.get(start..end) {
            return Ok(bytes.to_vec());
        }
        let mut bytes = vec![0; end - start];
        let n = crate::memory::file::read_at(self.fd.as_raw_fd(), &mut bytes, part.start)
            .map_err(|errno| LoadError::open(&self.path, errno))?;
        bytes.truncate(n);
        Ok(bytes)
    }

    fn read_interpreter_path(&self, part: &Range<u64>) -> Result<CString, LoadError> {
        let bad = || LoadError::problem(&self.path, elf::Problem::Corrupt("interpreter path"));
        let bytes = self.read_part(part)?;
        match bytes.iter().position(|&b| b == 0) {
            Some(nul) if nul > 0 && bytes.last() == Some(&0) => {
                CString::new(&bytes[..nul]).map_err(|_| bad())
            }
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests;
