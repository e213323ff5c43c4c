//! System calls of an excursion: the current thread's registers in, a value or an end out.
//!
//! Memory is this process's own, so its calls are carried out; time and random numbers are the host's; output is
//! kept. There are no files, no other threads, no other processes: what needs them fails, and what waits for
//! them ends the excursion.

use super::excursion::{Answer, Astray, now};
use super::protocol::ExcursionEnd;
use super::serve::Worker;
use crate::context::{R8, R9, R10, RAX, RDI, RDX, RSI};
use crate::guest::access;
use crate::memory::{self, MapError};
use crate::{sys, syscall};

/// As many pieces of output as the kernel takes at once.
const MOST_PIECES: u64 = 1024;
/// So much of one call's output is looked at.
const LONGEST_OUTPUT: u64 = 64 << 10;
/// So much is made at random at once; programs ask again for the rest.
const LONGEST_RANDOM: usize = 256;

fn error(errno: i32) -> Answer {
    Answer::Value(sys::err(errno))
}

fn of(answer: memory::Answer) -> Answer {
    match answer {
        Ok(value) => Answer::Value(value as i64),
        Err(MapError::Errno(errno)) => error(errno),
        // No place for it here.
        Err(MapError::Engine(_)) => error(libc::ENOMEM),
    }
}

impl Worker {
    /// Answers the call that the current thread has come to.
    pub(super) fn answer(&mut self) -> Answer {
        let gpr = &self.machine.gs.regs.gpr;
        let nr = gpr[RAX] as i64;
        let args = [gpr[RDI], gpr[RSI], gpr[RDX], gpr[R10], gpr[R8], gpr[R9]];
        let [a, b, c, d, e, f] = args;
        let memory = &mut self.machine.memory;
        let waits = Answer::Ends(ExcursionEnd::Waits { nr: nr as u32 });
        match nr {
            libc::SYS_mmap if d as i32 & libc::MAP_ANONYMOUS == 0 => error(libc::EBADF),
            libc::SYS_mmap => of(memory.mmap(a, b, c as i32, d as i32, -1, f)),
            libc::SYS_munmap => of(memory.munmap(a, b)),
            libc::SYS_mprotect => of(memory.mprotect(a, b, c as i32)),
            libc::SYS_mremap => of(memory.mremap(a, b, c, d as i32, e)),
            libc::SYS_madvise => of(memory.madvise(a, b, c as i32)),
            libc::SYS_brk => Answer::Value(memory.brk(a) as i64),
            libc::SYS_write => self.write_out(a, &[(b, c)]),
            libc::SYS_writev => self.write_pieces(a, b, c),
            libc::SYS_futex => self.futex(args).unwrap_or(waits),
            libc::SYS_getpid => Answer::Value(self.pids().0),
            libc::SYS_getppid => Answer::Value(self.pids().1),
            libc::SYS_gettid => Answer::Value(self.tid()),
            libc::SYS_set_tid_address => Answer::Value(self.tid()),
            libc::SYS_clock_gettime => self.put_words(b, &now(a as i32)),
            libc::SYS_clock_getres => self.put_words(b, &[0, 1]),
            libc::SYS_gettimeofday => {
                let [seconds, nanoseconds] = now(libc::CLOCK_REALTIME);
                self.put_words(a, &[seconds, nanoseconds / 1000])
            }
            libc::SYS_time => {
                let [seconds, _] = now(libc::CLOCK_REALTIME);
                match self.put_words(a, &[seconds]) {
                    Answer::Value(0) => Answer::Value(seconds as i64),
                    failed => failed,
                }
            }
            // Whoever sleeps has slept.
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_sched_yield => {
                Answer::Value(0)
            }
            libc::SYS_getrandom => self.random(a, b),
            // There are no signals: what was blocked or handled is nothing.
            libc::SYS_rt_sigprocmask => self.put_words(c, &[0]),
            libc::SYS_rt_sigaction => self.put_words(c, &[0; 4]),
            libc::SYS_rt_sigpending => self.put_words(a, &[0]),
            libc::SYS_sigaltstack => self.put_words(b, &[0, libc::SS_DISABLE as u64, 0]),
            libc::SYS_set_robust_list => Answer::Value(0),
            libc::SYS_arch_prctl => self.segment_base(a, b),
            libc::SYS_tgkill => self.signal(b, c),
            libc::SYS_tkill => self.signal(a, b),
            libc::SYS_kill if a as i64 == self.pids().0 || a == 0 => raised(b),
            libc::SYS_kill => error(libc::ESRCH),
            // Where its frame leads is a matter of the recording.
            libc::SYS_rt_sigreturn => Answer::Ends(ExcursionEnd::Signal {
                signo: libc::SIGSEGV,
                addr: self.machine.gs.regs.rip,
            }),
            libc::SYS_exit | libc::SYS_exit_group | libc::SYS_execve | libc::SYS_execveat => {
                Answer::Ends(ExcursionEnd::Exited)
            }
            libc::SYS_pause | libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait => waits,
            libc::SYS_wait4 | libc::SYS_waitid => error(libc::ECHILD),
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_pread64
            | libc::SYS_pwrite64
            | libc::SYS_close
            | libc::SYS_fstat
            | libc::SYS_lseek
            | libc::SYS_ioctl
            | libc::SYS_fcntl
            | libc::SYS_dup
            | libc::SYS_dup2
            | libc::SYS_dup3
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg => error(libc::EBADF),
            libc::SYS_open
            | libc::SYS_openat
            | libc::SYS_stat
            | libc::SYS_lstat
            | libc::SYS_newfstatat
            | libc::SYS_access
            | libc::SYS_readlink => error(libc::ENOENT),
            _ => error(libc::ENOSYS),
        }
    }

    fn astray(&mut self) -> &mut Astray {
        self.astray.get_or_insert_default()
    }

    /// Process and parent, as recorded.
    fn pids(&self) -> (i64, i64) {
        let start = self.machine.start.as_ref();
        start.map_or((0, 0), |s| (s.pid.into(), s.parent_pid.into()))
    }

    fn tid(&self) -> i64 {
        let thread = self.machine.threads.get(&self.machine.current);
        thread.map_or(self.pids().0, |thread| thread.tid.into())
    }

    /// Writes words for the guest, unless it doesn't want them.
    fn put_words(&mut self, addr: u64, words: &[u64]) -> Answer {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        match addr == 0 || self.machine.write(addr, &bytes).is_ok() {
            true => Answer::Value(0),
            false => error(libc::EFAULT),
        }
    }

    fn write_out(&mut self, fd: u64, pieces: &[(u64, u64)]) -> Answer {
        if !matches!(fd, 1 | 2) {
            return error(libc::EBADF);
        }
        let mut written = 0i64;
        for &(addr, len) in pieces {
            let mut bytes = vec![0; len.min(LONGEST_OUTPUT) as usize];
            if access::read_bytes(addr, &mut bytes).is_err() {
                return error(libc::EFAULT);
            }
            self.astray().write(&bytes);
            written = written.saturating_add(len as i64 & i64::MAX);
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
        self.write_out(fd, &pieces)
    }

    /// None: it waits, and nobody will wake it.
    fn futex(&mut self, [addr, op, value, timeout, ..]: [u64; 6]) -> Option<Answer> {
        let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
        Some(match op as i32 & !flags {
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => match access::read::<u32>(addr) {
                Err(_) => error(libc::EFAULT),
                Ok(found) if found != value as u32 => error(libc::EAGAIN),
                // Time is short here.
                Ok(_) if timeout != 0 => error(libc::ETIMEDOUT),
                Ok(_) => return None,
            },
            libc::FUTEX_WAKE
            | libc::FUTEX_WAKE_BITSET
            | libc::FUTEX_REQUEUE
            | libc::FUTEX_CMP_REQUEUE => Answer::Value(0),
            _ => error(libc::ENOSYS),
        })
    }

    fn random(&mut self, addr: u64, len: u64) -> Answer {
        let mut bytes = [0u8; LONGEST_RANDOM];
        let len = (len as usize).min(bytes.len());
        // SAFETY: the kernel writes at most so many bytes.
        let got = unsafe { syscall!(libc::SYS_getrandom, bytes.as_mut_ptr(), len, 0) };
        if got < 0 {
            return Answer::Value(got);
        }
        match self.machine.write(addr, &bytes[..got as usize]) {
            Ok(()) => Answer::Value(got),
            Err(_) => error(libc::EFAULT),
        }
    }

    fn segment_base(&mut self, code: u64, value: u64) -> Answer {
        const SET_GS: u64 = 0x1001;
        const SET_FS: u64 = 0x1002;
        const GET_FS: u64 = 0x1003;
        const GET_GS: u64 = 0x1004;
        let regs = &mut self.machine.gs.regs;
        let canonical = (value as i64) << 16 >> 16 == value as i64;
        match code {
            SET_GS | SET_FS if !canonical => return error(libc::EPERM),
            SET_FS => regs.fs_base = value,
            SET_GS => regs.gs_base = value,
            GET_FS => {
                let base = regs.fs_base;
                return self.put_words(value, &[base]);
            }
            GET_GS => {
                let base = regs.gs_base;
                return self.put_words(value, &[base]);
            }
            _ => return error(libc::EINVAL),
        }
        Answer::Value(0)
    }

    fn signal(&self, tid: u64, signo: u64) -> Answer {
        match tid as i64 == self.tid() {
            true => raised(signo),
            false => error(libc::ESRCH),
        }
    }
}

/// It sends itself a signal.
fn raised(signo: u64) -> Answer {
    match signo {
        0 => Answer::Value(0),
        signo => Answer::Ends(ExcursionEnd::Signal {
            signo: signo as i32,
            addr: 0,
        }),
    }
}
