//! System calls of debug code, and of the program's functions that it calls. In: the call's registers. Out: a value, or why
//! the probe ends there.
//!
//! Memory is the module's own, output is kept for the commander, time is the host's; there are no files but those that
//! debug code was given (the program's functions have none), no other threads and no other processes.

use super::run::{Runner, World};
use crate::context::{GsBlock, R8, R10, RAX, RDI, RDX, RSI};
use crate::guest::access;
use crate::replay::worker::excursion::now;
use crate::replay::worker::protocol::probing::{Failure, Told};
use crate::{sys, syscall};

pub enum Answer {
    Value(i64),
    Fails(Failure),
}

/// As many pieces of output as the kernel takes at once.
const MOST_PIECES: u64 = 1024;
/// So much of one call's output is taken; programs write the rest again.
const LONGEST_OUTPUT: u64 = 32 << 10;
const LONGEST_RANDOM: usize = 256;
const LONGEST_NAME: usize = 4096;
/// Where they are in the kernel's stat.
const MODE: usize = 24;
const BLOCK: usize = 56;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
/// What the module's libc believes its process to be.
const PID: i64 = 1;

fn error(errno: i32) -> Answer {
    Answer::Value(sys::err(errno))
}

fn of(answer: Result<u64, i32>) -> Answer {
    match answer {
        Ok(value) => Answer::Value(value as i64),
        Err(errno) => error(errno),
    }
}

impl Runner {
    pub(super) fn answer(&mut self, gs: &mut GsBlock) -> Answer {
        let gpr = gs.regs.gpr;
        let [a, b, c, d] = [gpr[RDI], gpr[RSI], gpr[RDX], gpr[R10]];
        let wait = |b: u64| matches!(b & 0x7f, 0 | 9);
        if self.world == World::Module
            && self.files.is_some()
            && let Some(answer) = self.of_files(gpr[RAX] as i64, [a, b, c, d])
        {
            return answer;
        }
        match gpr[RAX] as i64 {
            libc::SYS_write => self.write(a, &[(b, c)]),
            libc::SYS_writev => self.write_pieces(a, b, c),
            // The program's heap stays as it is: its malloc asks for mappings then.
            libc::SYS_brk if self.world == World::Guest => error(libc::ENOMEM),
            libc::SYS_brk => Answer::Value(self.space.brk(a) as i64),
            libc::SYS_mmap
                if d as i32 & (libc::MAP_ANONYMOUS | libc::MAP_FIXED) == libc::MAP_ANONYMOUS =>
            {
                of(self.space.mmap(b))
            }
            libc::SYS_mmap => error(libc::EBADF),
            libc::SYS_munmap => of(self.space.munmap(a, b).map(|()| 0)),
            libc::SYS_mremap => of(self.space.mremap(a, b, c)),
            libc::SYS_mprotect => of(self.space.mprotect(a, b, c as i32).map(|()| 0)),
            libc::SYS_madvise | libc::SYS_set_robust_list => Answer::Value(0),
            libc::SYS_arch_prctl if a == ARCH_SET_FS && self.world == World::Module => {
                if b >> 47 != 0 {
                    return error(libc::EPERM);
                }
                gs.regs.fs_base = b;
                Answer::Value(0)
            }
            libc::SYS_arch_prctl if a == ARCH_GET_FS => {
                let base = gs.regs.fs_base;
                self.put(b, &base.to_le_bytes())
            }
            libc::SYS_arch_prctl => error(libc::EINVAL),
            libc::SYS_getpid | libc::SYS_gettid | libc::SYS_set_tid_address => Answer::Value(PID),
            libc::SYS_clock_gettime => {
                let [seconds, nanoseconds] = now(a as i32);
                self.put_words(b, &[seconds, nanoseconds])
            }
            libc::SYS_gettimeofday => {
                let [seconds, nanoseconds] = now(libc::CLOCK_REALTIME);
                self.put_words(a, &[seconds, nanoseconds / 1000])
            }
            libc::SYS_time => Answer::Value(now(libc::CLOCK_REALTIME)[0] as i64),
            libc::SYS_getrandom => self.random(a, b),
            libc::SYS_fstat => self.stat(a, b),
            // By a descriptor: an empty name.
            libc::SYS_newfstatat if access::read::<u8>(b) == Ok(0) => self.stat(a, c),
            libc::SYS_rt_sigprocmask => self.put_words(c, &[0]),
            libc::SYS_rt_sigaction => self.put_words(c, &[0; 4]),
            libc::SYS_sched_yield | libc::SYS_nanosleep | libc::SYS_clock_nanosleep => {
                Answer::Value(0)
            }
            // Nobody else is there to wake it.
            libc::SYS_futex if wait(b) && access::read::<u32>(a) == Ok(c as u32) => {
                Answer::Fails(Failure::Waits)
            }
            libc::SYS_futex if wait(b) => error(libc::EAGAIN),
            libc::SYS_futex => Answer::Value(0),
            libc::SYS_exit | libc::SYS_exit_group => Answer::Fails(Failure::Exited {
                status: a as i32 & 0xff,
            }),
            libc::SYS_fork
            | libc::SYS_vfork
            | libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_execve => Answer::Fails(Failure::Fork),
            libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => {
                let signo = match gpr[RAX] as i64 {
                    libc::SYS_tgkill => c,
                    _ => b,
                };
                match signo {
                    0 => Answer::Value(0),
                    signo => Answer::Fails(Failure::Signal {
                        signo: signo as i32,
                        addr: 0,
                    }),
                }
            }
            libc::SYS_open
            | libc::SYS_openat
            | libc::SYS_stat
            | libc::SYS_newfstatat
            | libc::SYS_access
            | libc::SYS_faccessat
            | libc::SYS_readlink
            | libc::SYS_readlinkat
            | libc::SYS_unlink
            | libc::SYS_rename => error(libc::EACCES),
            libc::SYS_ioctl => error(libc::ENOTTY),
            libc::SYS_read | libc::SYS_close | libc::SYS_lseek | libc::SYS_fcntl => {
                error(libc::EBADF)
            }
            libc::SYS_prlimit64 if gpr[R10] == 0 => error(libc::EPERM),
            libc::SYS_prlimit64 => self.put_words(d, &[u64::MAX; 2]),
            _ => {
                let _ = gpr[R8];
                error(libc::ENOSYS)
            }
        }
    }

    /// Calls about files of debug code; none if it is about something else.
    fn of_files(&mut self, nr: i64, [a, b, c, d]: [u64; 4]) -> Option<Answer> {
        let here = |dir: u64, path: &[u8]| dir as i32 == libc::AT_FDCWD || path.starts_with(b"/");
        let named = |at: u64| access::read_cstr(at, LONGEST_NAME).map_err(|_| libc::EFAULT);
        let own = a > 2;
        Some(match nr {
            libc::SYS_open => match named(a) {
                Ok(path) => self.open_file(&path, b as i32),
                Err(errno) => error(errno),
            },
            libc::SYS_openat => match named(b) {
                Ok(path) if here(a, &path) => self.open_file(&path, c as i32),
                Ok(_) => error(libc::EACCES),
                Err(errno) => error(errno),
            },
            libc::SYS_read if own => self.read_file(a, b, c),
            libc::SYS_lseek if own => of(self.files.as_mut()?.seek(a, b as i64, c as i32)),
            libc::SYS_close if own => of(self.files.as_mut()?.close(a).map(|()| 0)),
            libc::SYS_fcntl if own => of(self.files.as_mut()?.size(a).map(|_| 0)),
            libc::SYS_fstat if own => {
                let size = self.files.as_mut()?.size(a);
                self.stat_file(size.map(Some), b)
            }
            libc::SYS_newfstatat if d as i32 & libc::AT_EMPTY_PATH != 0 && own && a as i32 >= 0 => {
                let size = self.files.as_mut()?.size(a);
                self.stat_file(size.map(Some), c)
            }
            libc::SYS_stat | libc::SYS_lstat => {
                let size = named(a).and_then(|path| self.size_of(&path));
                self.stat_file(size, b)
            }
            libc::SYS_newfstatat if a as i32 == libc::AT_FDCWD => {
                let size = named(b).and_then(|path| self.size_of(&path));
                self.stat_file(size, c)
            }
            libc::SYS_access => of(named(a).and_then(|path| self.size_of(&path)).map(|_| 0)),
            libc::SYS_faccessat if a as i32 == libc::AT_FDCWD => {
                of(named(b).and_then(|path| self.size_of(&path)).map(|_| 0))
            }
            _ => return None,
        })
    }

    fn size_of(&self, path: &[u8]) -> Result<Option<u64>, i32> {
        let files = self.files.as_ref().ok_or(libc::EACCES)?;
        files.size_of(path)
    }

    fn open_file(&mut self, path: &[u8], flags: i32) -> Answer {
        let Some(files) = &mut self.files else {
            return error(libc::EACCES);
        };
        match files.open(path, flags) {
            Ok(opened) => {
                if let Some(name) = opened.emptied {
                    self.tell_file(Told::Emptied { name });
                }
                Answer::Value(opened.fd as i64)
            }
            Err(errno) => error(errno),
        }
    }

    fn read_file(&mut self, fd: u64, to: u64, len: u64) -> Answer {
        let Some(files) = &mut self.files else {
            return error(libc::EBADF);
        };
        let bytes = match files.read(fd, len) {
            Ok(bytes) => bytes,
            Err(errno) => return error(errno),
        };
        match self.put(to, &bytes) {
            Answer::Value(0) => Answer::Value(bytes.len() as i64),
            failed => failed,
        }
    }

    fn write_file(&mut self, fd: u64, from: u64, len: u64) -> Answer {
        let mut bytes = vec![0; len.min(LONGEST_OUTPUT) as usize];
        if access::read_bytes(from, &mut bytes).is_err() {
            return error(libc::EFAULT);
        }
        let Some(files) = &mut self.files else {
            return error(libc::EBADF);
        };
        match files.write(fd, &bytes) {
            Ok((name, at)) => {
                let len = bytes.len() as i64;
                self.tell_file(Told::Wrote { name, at, bytes });
                Answer::Value(len)
            }
            Err(errno) => error(errno),
        }
    }

    /// A regular file of that size, or a folder.
    fn stat_file(&mut self, size: Result<Option<u64>, i32>, to: u64) -> Answer {
        const LINKS: usize = 16;
        const SIZE: usize = 48;
        let size = match size {
            Ok(size) => size,
            Err(errno) => return error(errno),
        };
        let mode = match size {
            Some(_) => libc::S_IFREG | 0o600,
            None => libc::S_IFDIR | 0o700,
        };
        let mut stat = [0u8; 144];
        stat[LINKS..LINKS + 8].copy_from_slice(&1u64.to_le_bytes());
        stat[MODE..MODE + 4].copy_from_slice(&mode.to_le_bytes());
        stat[SIZE..SIZE + 8].copy_from_slice(&size.unwrap_or(0).to_le_bytes());
        stat[BLOCK..BLOCK + 8].copy_from_slice(&4096u64.to_le_bytes());
        self.put(to, &stat)
    }

    /// Writes for debug code; what is the program's is put back when the probe is over.
    fn put(&mut self, addr: u64, bytes: &[u8]) -> Answer {
        if !self.keep(addr, bytes.len() as u64) || access::write_bytes(addr, bytes).is_err() {
            return error(libc::EFAULT);
        }
        Answer::Value(0)
    }

    fn put_words(&mut self, addr: u64, words: &[u64]) -> Answer {
        if addr == 0 {
            return Answer::Value(0);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(addr, &bytes)
    }

    fn write(&mut self, fd: u64, pieces: &[(u64, u64)]) -> Answer {
        if !matches!(fd, 1 | 2) {
            return self.write_files(fd, pieces);
        }
        let mut written = 0;
        for &(addr, len) in pieces {
            let mut bytes = vec![0; len.min(LONGEST_OUTPUT) as usize];
            if access::read_bytes(addr, &mut bytes).is_err() {
                return error(libc::EFAULT);
            }
            written += bytes.len() as i64;
            let whole = bytes.len() as u64 == len;
            self.tell(fd as u32, bytes);
            if !whole {
                break;
            }
        }
        Answer::Value(written)
    }

    fn write_files(&mut self, fd: u64, pieces: &[(u64, u64)]) -> Answer {
        if self.world != World::Module {
            return error(libc::EBADF);
        }
        let mut written = 0;
        for &(addr, len) in pieces {
            match self.write_file(fd, addr, len) {
                Answer::Value(some) if some >= 0 => {
                    written += some;
                    if some as u64 != len {
                        break;
                    }
                }
                failed if written == 0 => return failed,
                _ => break,
            }
        }
        Answer::Value(written)
    }

    fn write_pieces(&mut self, fd: u64, vectors: u64, count: u64) -> Answer {
        if count > MOST_PIECES {
            return error(libc::EINVAL);
        }
        let mut pieces = Vec::new();
        for n in 0..count {
            match access::read::<[u64; 2]>(vectors.wrapping_add(16 * n)) {
                Ok([addr, len]) => pieces.push((addr, len)),
                Err(_) => return error(libc::EFAULT),
            }
        }
        self.write(fd, &pieces)
    }

    /// Output is a pipe.
    fn stat(&mut self, fd: u64, to: u64) -> Answer {
        if !matches!(fd, 1 | 2) {
            return error(libc::EBADF);
        }
        let mut stat = [0u8; 144];
        stat[MODE..MODE + 4].copy_from_slice(&(libc::S_IFIFO | 0o600).to_le_bytes());
        stat[BLOCK..BLOCK + 8].copy_from_slice(&4096u64.to_le_bytes());
        self.put(to, &stat)
    }

    fn random(&mut self, to: u64, len: u64) -> Answer {
        let mut bytes = [0u8; LONGEST_RANDOM];
        let len = len.min(LONGEST_RANDOM as u64) as usize;
        // SAFETY: the kernel writes so many bytes.
        unsafe { syscall!(libc::SYS_getrandom, bytes.as_mut_ptr(), len, 0) };
        match self.put(to, &bytes[..len]) {
            Answer::Value(0) => Answer::Value(len as i64),
            failed => failed,
        }
    }
}
