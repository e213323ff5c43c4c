//! The lock around a replaying process: what it may ask of the kernel from here on.
//!
//! Replayed code has no system call of its own, all were translated away. Should that ever fail, or
//! the engine be led astray by a recording from a stranger, the kernel refuses: no files, no network,
//! no other process, nothing but memory, the recording's open files, and the report.

use std::os::fd::RawFd;

use crate::kernel::stop;
use crate::syscall;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000 | libc::EACCES as u32;

/// Memory, reading what is open, forks (snapshots, child processes), the end.
const ALLOWED: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_copy_file_range,
    libc::SYS_pwrite64,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_sendto,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_fork,
    libc::SYS_fcntl,
    libc::SYS_mincore,
    libc::SYS_sysinfo,
    libc::SYS_clock_gettime,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_gettid,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_process_vm_readv,
];

/// What the engine tries where it can, and does without: saved translations.
const REFUSED: &[i64] = &[libc::SYS_open, libc::SYS_openat, libc::SYS_utimensat];

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn jump(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf,
        k,
    }
}

/// From here on this process, and what it forks, can do no harm.
pub fn lock(_report: RawFd) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut program = vec![
        statement(LOAD, 4),
        jump(AUDIT_ARCH_X86_64, 1, 0),
        statement(RETURN, KILL),
        statement(LOAD, 0),
    ];
    for &nr in ALLOWED {
        program.push(jump(nr as u32, 0, 1));
        program.push(statement(RETURN, ALLOW));
    }
    for &nr in REFUSED {
        program.push(jump(nr as u32, 0, 1));
        program.push(statement(RETURN, REFUSE));
    }
    program.push(statement(RETURN, KILL));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the program, which lives until the call is over.
    let done = unsafe {
        syscall!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && syscall!(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &raw const filter
            ) == 0
    };
    if !done {
        stop::warn("the kernel offers no seccomp: replaying without that lock");
    }
}
