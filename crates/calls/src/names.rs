//! Names of what is a number to the kernel: calls, errors, signals, flags.

use crate::table;

/// The name of a system call; of an unknown one, its number.
pub fn call(nr: u32) -> String {
    match table::lookup(u64::from(nr)).name {
        "?" => format!("syscall_{nr}"),
        name => name.into(),
    }
}

/// `SIGSEGV`, `SIGRT3`, `signal 77`.
pub fn signal(signo: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match signo {
        1..=31 => format!("SIG{}", NAMES[signo as usize - 1]),
        32..=64 => format!("SIGRT{}", signo - 32),
        _ => format!("signal {signo}"),
    }
}

/// What a siginfo's code says of where a signal came from.
pub fn signal_code(signo: i32, code: i32) -> String {
    let name = match (signo, code) {
        (_, 0) => "SI_USER",
        (_, -1) => "SI_QUEUE",
        (_, -2) => "SI_TIMER",
        (_, -3) => "SI_MESGQ",
        (_, -4) => "SI_ASYNCIO",
        (_, -5) => "SI_SIGIO",
        (_, -6) => "SI_TKILL",
        (_, 128) => "SI_KERNEL",
        (libc::SIGSEGV, 1) => "SEGV_MAPERR",
        (libc::SIGSEGV, 2) => "SEGV_ACCERR",
        (libc::SIGBUS, 1) => "BUS_ADRALN",
        (libc::SIGBUS, 2) => "BUS_ADRERR",
        (libc::SIGFPE, 1) => "FPE_INTDIV",
        (libc::SIGFPE, 2) => "FPE_INTOVF",
        (libc::SIGFPE, 3) => "FPE_FLTDIV",
        (libc::SIGILL, 2) => "ILL_ILLOPN",
        (libc::SIGTRAP, 1) => "TRAP_BRKPT",
        (libc::SIGTRAP, 2) => "TRAP_TRACE",
        (libc::SIGCHLD, 1) => "CLD_EXITED",
        (libc::SIGCHLD, 2) => "CLD_KILLED",
        (libc::SIGCHLD, 3) => "CLD_DUMPED",
        (libc::SIGCHLD, 4) => "CLD_TRAPPED",
        (libc::SIGCHLD, 5) => "CLD_STOPPED",
        (libc::SIGCHLD, 6) => "CLD_CONTINUED",
        _ => return format!("code {code}"),
    };
    name.into()
}

/// `ENOENT`; the kernel's own restart codes too.
pub fn errno(errno: i64) -> Option<&'static str> {
    const NAMES: [&str; 133] = [
        "EPERM",
        "ENOENT",
        "ESRCH",
        "EINTR",
        "EIO",
        "ENXIO",
        "E2BIG",
        "ENOEXEC",
        "EBADF",
        "ECHILD",
        "EAGAIN",
        "ENOMEM",
        "EACCES",
        "EFAULT",
        "ENOTBLK",
        "EBUSY",
        "EEXIST",
        "EXDEV",
        "ENODEV",
        "ENOTDIR",
        "EISDIR",
        "EINVAL",
        "ENFILE",
        "EMFILE",
        "ENOTTY",
        "ETXTBSY",
        "EFBIG",
        "ENOSPC",
        "ESPIPE",
        "EROFS",
        "EMLINK",
        "EPIPE",
        "EDOM",
        "ERANGE",
        "EDEADLK",
        "ENAMETOOLONG",
        "ENOLCK",
        "ENOSYS",
        "ENOTEMPTY",
        "ELOOP",
        "",
        "ENOMSG",
        "EIDRM",
        "ECHRNG",
        "EL2NSYNC",
        "EL3HLT",
        "EL3RST",
        "ELNRNG",
        "EUNATCH",
        "ENOCSI",
        "EL2HLT",
        "EBADE",
        "EBADR",
        "EXFULL",
        "ENOANO",
        "EBADRQC",
        "EBADSLT",
        "",
        "EBFONT",
        "ENOSTR",
        "ENODATA",
        "ETIME",
        "ENOSR",
        "ENONET",
        "ENOPKG",
        "EREMOTE",
        "ENOLINK",
        "EADV",
        "ESRMNT",
        "ECOMM",
        "EPROTO",
        "EMULTIHOP",
        "EDOTDOT",
        "EBADMSG",
        "EOVERFLOW",
        "ENOTUNIQ",
        "EBADFD",
        "EREMCHG",
        "ELIBACC",
        "ELIBBAD",
        "ELIBSCN",
        "ELIBMAX",
        "ELIBEXEC",
        "EILSEQ",
        "ERESTART",
        "ESTRPIPE",
        "EUSERS",
        "ENOTSOCK",
        "EDESTADDRREQ",
        "EMSGSIZE",
        "EPROTOTYPE",
        "ENOPROTOOPT",
        "EPROTONOSUPPORT",
        "ESOCKTNOSUPPORT",
        "EOPNOTSUPP",
        "EPFNOSUPPORT",
        "EAFNOSUPPORT",
        "EADDRINUSE",
        "EADDRNOTAVAIL",
        "ENETDOWN",
        "ENETUNREACH",
        "ENETRESET",
        "ECONNABORTED",
        "ECONNRESET",
        "ENOBUFS",
        "EISCONN",
        "ENOTCONN",
        "ESHUTDOWN",
        "ETOOMANYREFS",
        "ETIMEDOUT",
        "ECONNREFUSED",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "EALREADY",
        "EINPROGRESS",
        "ESTALE",
        "EUCLEAN",
        "ENOTNAM",
        "ENAVAIL",
        "EISNAM",
        "EREMOTEIO",
        "EDQUOT",
        "ENOMEDIUM",
        "EMEDIUMTYPE",
        "ECANCELED",
        "ENOKEY",
        "EKEYEXPIRED",
        "EKEYREVOKED",
        "EKEYREJECTED",
        "EOWNERDEAD",
        "ENOTRECOVERABLE",
        "ERFKILL",
        "EHWPOISON",
    ];
    match errno {
        512 => Some("ERESTARTSYS"),
        513 => Some("ERESTARTNOINTR"),
        514 => Some("ERESTARTNOHAND"),
        516 => Some("ERESTART_RESTARTBLOCK"),
        1..=133 => Some(NAMES[errno as usize - 1]).filter(|name| !name.is_empty()),
        _ => None,
    }
}

type Bits = &'static [(u64, &'static str)];

/// How the number in an argument is written.
enum Words {
    /// One of these.
    One(Bits),
    /// Some of these, with `|` between them; with the name of 0.
    Some(Bits, &'static str),
    /// One of these in the bits of the mask, and some of the others.
    Both(u64, Bits, Bits),
    Signal,
    Octal,
}

/// The argument of a call in words, if it has any.
pub fn argument(call: &str, index: usize, value: u64) -> Option<String> {
    Some(match words(call, index)? {
        Words::One(names) => one(names, value)?.into(),
        Words::Some(names, zero) => some(names, value, zero),
        Words::Both(mask, first, rest) => {
            let name = one(first, value & mask)?;
            match value & !mask {
                0 => name.into(),
                more => format!("{name}|{}", some(rest, more, "0")),
            }
        }
        Words::Signal if value == 0 => "0".into(),
        Words::Signal => signal(value as i32),
        Words::Octal => format!("0{value:o}"),
    })
}

fn one(names: Bits, value: u64) -> Option<&'static str> {
    // Commands and the like are ints.
    let found = names
        .iter()
        .find(|(number, _)| *number as u32 == value as u32);
    found.map(|(_, name)| *name)
}

fn some(names: Bits, value: u64, zero: &str) -> String {
    if value == 0 {
        return zero.into();
    }
    let mut left = value;
    let mut out: Vec<String> = Vec::new();
    for &(bits, name) in names {
        if left & bits == bits {
            out.push(name.into());
            left &= !bits;
        }
    }
    if left != 0 {
        out.push(format!("{left:#x}"));
    }
    out.join("|")
}

macro_rules! bits {
    ($prefix:ident: $($name:ident)*) => {
        &[$((libc::$name as u64, stringify!($name))),*]
    };
}

const ACCESS: Bits = &[(0, "O_RDONLY"), (1, "O_WRONLY"), (2, "O_RDWR")];
// O_TMPFILE holds O_DIRECTORY, O_SYNC holds O_DSYNC: the larger first.
const OPEN: Bits = bits!(o: O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC O_ASYNC
    O_DIRECT O_TMPFILE O_DIRECTORY O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH);
const PROT: Bits = bits!(p: PROT_READ PROT_WRITE PROT_EXEC PROT_GROWSDOWN);
const MAP: Bits = bits!(m: MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN MAP_DENYWRITE MAP_LOCKED
    MAP_NORESERVE MAP_POPULATE MAP_NONBLOCK MAP_STACK MAP_HUGETLB MAP_FIXED_NOREPLACE);
const MAP_TYPE: Bits = &[
    (1, "MAP_SHARED"),
    (2, "MAP_PRIVATE"),
    (3, "MAP_SHARED_VALIDATE"),
];
const CLONE: Bits = bits!(c: CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE
    CLONE_VFORK CLONE_PARENT CLONE_THREAD CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID
    CLONE_CHILD_CLEARTID CLONE_DETACHED CLONE_UNTRACED CLONE_CHILD_SETTID CLONE_NEWCGROUP CLONE_NEWUTS
    CLONE_NEWIPC CLONE_NEWUSER CLONE_NEWPID CLONE_NEWNET CLONE_IO);
const AT: Bits = bits!(a: AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT
    AT_EMPTY_PATH);
const WHENCE: Bits = bits!(s: SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE);
const MODE: Bits = &[(4, "R_OK"), (2, "W_OK"), (1, "X_OK")];
const HOW: Bits = bits!(s: SIG_BLOCK SIG_UNBLOCK SIG_SETMASK);
const WAIT: Bits = bits!(w: WNOHANG WUNTRACED WEXITED WCONTINUED WNOWAIT __WALL __WCLONE);
const FCNTL: Bits = bits!(f: F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN
    F_GETOWN F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS
    F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETLEASE F_GETLEASE);
const IOCTL: Bits = bits!(t: TCGETS TCSETS TCSETSW TCSETSF TIOCGWINSZ TIOCSWINSZ TIOCGPGRP TIOCSPGRP
    TIOCSCTTY TIOCNOTTY TIOCGPTN TIOCSPTLCK FIONREAD FIONBIO FIOCLEX FIONCLEX);
const FAMILY: Bits = bits!(a: AF_UNSPEC AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET);
const SOCKET: Bits = bits!(s: SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_SEQPACKET);
const SOCKET_FLAGS: Bits = bits!(s: SOCK_NONBLOCK SOCK_CLOEXEC);
const MSG: Bits = bits!(m: MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_CTRUNC MSG_TRUNC MSG_DONTWAIT MSG_EOR
    MSG_WAITALL MSG_NOSIGNAL MSG_MORE MSG_CMSG_CLOEXEC MSG_WAITFORONE);
const SHUT: Bits = bits!(s: SHUT_RD SHUT_WR SHUT_RDWR);
const CLOCK: Bits = bits!(c: CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID
    CLOCK_THREAD_CPUTIME_ID CLOCK_MONOTONIC_RAW CLOCK_REALTIME_COARSE CLOCK_MONOTONIC_COARSE
    CLOCK_BOOTTIME CLOCK_REALTIME_ALARM CLOCK_BOOTTIME_ALARM CLOCK_TAI);
const FUTEX: Bits = &[
    (0, "FUTEX_WAIT"),
    (1, "FUTEX_WAKE"),
    (2, "FUTEX_FD"),
    (3, "FUTEX_REQUEUE"),
    (4, "FUTEX_CMP_REQUEUE"),
    (5, "FUTEX_WAKE_OP"),
    (6, "FUTEX_LOCK_PI"),
    (7, "FUTEX_UNLOCK_PI"),
    (8, "FUTEX_TRYLOCK_PI"),
    (9, "FUTEX_WAIT_BITSET"),
    (10, "FUTEX_WAKE_BITSET"),
    (11, "FUTEX_WAIT_REQUEUE_PI"),
    (12, "FUTEX_CMP_REQUEUE_PI"),
    (13, "FUTEX_LOCK_PI2"),
];
const FUTEX_FLAGS: Bits = &[(128, "FUTEX_PRIVATE_FLAG"), (256, "FUTEX_CLOCK_REALTIME")];
const MADVISE: Bits = bits!(m: MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED
    MADV_FREE MADV_REMOVE MADV_DONTFORK MADV_DOFORK MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP
    MADV_DODUMP);
const MREMAP: Bits = bits!(m: MREMAP_MAYMOVE MREMAP_FIXED);
const EPOLL: Bits = bits!(e: EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD);
const RESOURCE: Bits = bits!(r: RLIMIT_CPU RLIMIT_FSIZE RLIMIT_DATA RLIMIT_STACK RLIMIT_CORE RLIMIT_RSS
    RLIMIT_NPROC RLIMIT_NOFILE RLIMIT_MEMLOCK RLIMIT_AS RLIMIT_LOCKS RLIMIT_SIGPENDING
    RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME);
const PRCTL: Bits = bits!(p: PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_SET_DUMPABLE
    PR_SET_NAME PR_GET_NAME PR_GET_SECCOMP PR_SET_SECCOMP PR_CAPBSET_READ PR_CAPBSET_DROP
    PR_SET_TIMERSLACK PR_GET_TIMERSLACK PR_SET_CHILD_SUBREAPER PR_GET_CHILD_SUBREAPER
    PR_SET_NO_NEW_PRIVS PR_GET_NO_NEW_PRIVS PR_SET_VMA PR_CAP_AMBIENT);
const ARCH: Bits = &[
    (0x1001, "ARCH_SET_GS"),
    (0x1002, "ARCH_SET_FS"),
    (0x1003, "ARCH_GET_FS"),
    (0x1004, "ARCH_GET_GS"),
    (0x1011, "ARCH_GET_CPUID"),
    (0x1012, "ARCH_SET_CPUID"),
    (0x3001, "ARCH_CET_STATUS"),
];
const PIPE: Bits = bits!(o: O_NONBLOCK O_DIRECT O_CLOEXEC);
const RANDOM: Bits = bits!(g: GRND_NONBLOCK GRND_RANDOM);
const MEMFD: Bits = bits!(m: MFD_CLOEXEC MFD_ALLOW_SEALING MFD_HUGETLB);
const FLOCK: Bits = bits!(l: LOCK_SH LOCK_EX LOCK_UN LOCK_NB);

fn words(call: &str, index: usize) -> Option<Words> {
    use Words::{Both, Octal, One, Signal, Some as Any};
    Some(match (call, index) {
        ("open", 1) | ("openat", 2) | ("open_by_handle_at", 2) => Both(3, ACCESS, OPEN),
        ("open", 2) | ("openat", 3) | ("creat", 1) | ("mkdir", 1) | ("mkdirat", 2) => Octal,
        ("chmod" | "fchmod", 1) | ("fchmodat", 2) | ("umask", 0) | ("mknod", 1) => Octal,
        ("mmap", 2) | ("mprotect", 2) | ("pkey_mprotect", 2) => Any(PROT, "PROT_NONE"),
        ("mmap", 3) => Both(3, MAP_TYPE, MAP),
        ("mremap", 3) => Any(MREMAP, "0"),
        ("madvise", 2) => One(MADVISE),
        ("clone", 0) => return Some(Words::Both(0xff, EXIT_SIGNALS, CLONE)),
        ("unshare", 0) => Any(CLONE, "0"),
        ("newfstatat", 3) | ("statx", 2) | ("unlinkat", 2) | ("linkat", 4) => Any(AT, "0"),
        ("fchownat", 4) | ("utimensat", 3) | ("faccessat2", 3) | ("execveat", 4) => Any(AT, "0"),
        ("lseek", 2) => One(WHENCE),
        ("access", 1) | ("faccessat" | "faccessat2", 2) => Any(MODE, "F_OK"),
        ("rt_sigprocmask", 0) => One(HOW),
        ("rt_sigaction", 0) | ("kill" | "tkill", 1) | ("tgkill", 2) => Signal,
        ("rt_sigqueueinfo" | "pidfd_send_signal", 1) | ("rt_tgsigqueueinfo", 2) => Signal,
        ("wait4", 2) | ("waitid", 3) => Any(WAIT, "0"),
        ("fcntl", 1) => One(FCNTL),
        ("ioctl", 1) => One(IOCTL),
        ("socket" | "socketpair", 0) => One(FAMILY),
        ("socket" | "socketpair", 1) => Both(0xf, SOCKET, SOCKET_FLAGS),
        ("accept4", 3) => Any(SOCKET_FLAGS, "0"),
        ("sendto" | "recvfrom", 3) | ("sendmsg" | "recvmsg", 2) => Any(MSG, "0"),
        ("sendmmsg" | "recvmmsg", 3) => Any(MSG, "0"),
        ("shutdown", 1) => One(SHUT),
        ("clock_gettime" | "clock_getres" | "clock_nanosleep" | "clock_settime", 0) => One(CLOCK),
        ("timer_create" | "timerfd_create", 0) => One(CLOCK),
        ("futex", 1) => Both(0x7f, FUTEX, FUTEX_FLAGS),
        ("epoll_ctl", 1) => One(EPOLL),
        ("getrlimit" | "setrlimit", 0) | ("prlimit64", 1) => One(RESOURCE),
        ("prctl", 0) => One(PRCTL),
        ("arch_prctl", 0) => One(ARCH),
        ("pipe2", 1) | ("dup3", 2) | ("epoll_create1", 0) | ("eventfd2", 1) => Any(PIPE, "0"),
        ("signalfd4", 3) | ("inotify_init1", 0) | ("timerfd_create", 1) => Any(PIPE, "0"),
        ("getrandom", 2) => Any(RANDOM, "0"),
        ("memfd_create", 1) => Any(MEMFD, "0"),
        ("flock", 1) => Any(FLOCK, "0"),
        _ => return None,
    })
}

/// The low byte of clone's flags.
const EXIT_SIGNALS: Bits = &[(0, "0"), (libc::SIGCHLD as u64, "SIGCHLD")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_words() {
        let open = libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC;
        assert_eq!(
            argument("openat", 2, open as u64).unwrap(),
            "O_RDWR|O_CREAT|O_CLOEXEC"
        );
        assert_eq!(argument("openat", 2, 0).unwrap(), "O_RDONLY");
        assert_eq!(argument("mmap", 2, 0).unwrap(), "PROT_NONE");
        assert_eq!(argument("mmap", 2, 3).unwrap(), "PROT_READ|PROT_WRITE");
        assert_eq!(
            argument("mmap", 3, 0x22).unwrap(),
            "MAP_PRIVATE|MAP_ANONYMOUS"
        );
        assert_eq!(
            argument("futex", 1, 0x89).unwrap(),
            "FUTEX_WAIT_BITSET|FUTEX_PRIVATE_FLAG"
        );
        assert_eq!(argument("kill", 1, 15).unwrap(), "SIGTERM");
        assert_eq!(argument("madvise", 2, 4).unwrap(), "MADV_DONTNEED");
        assert_eq!(argument("access", 1, 0).unwrap(), "F_OK");
        assert_eq!(argument("chmod", 1, 0o755).unwrap(), "0755");
        // What it doesn't know stays a number.
        assert_eq!(argument("ioctl", 1, 0x1234_5678), None);
        assert_eq!(argument("read", 0, 1), None);
        assert_eq!(argument("unshare", 0, 1 << 40).unwrap(), "0x10000000000");
    }

    #[test]
    fn errors_and_signals_have_the_kernels_names() {
        for (number, name) in [
            (libc::ENOENT, "ENOENT"),
            (libc::EAGAIN, "EAGAIN"),
            (libc::ENOSYS, "ENOSYS"),
            (libc::EILSEQ, "EILSEQ"),
            (libc::ETIMEDOUT, "ETIMEDOUT"),
            (libc::EHWPOISON, "EHWPOISON"),
        ] {
            assert_eq!(errno(i64::from(number)), Some(name));
        }
        assert_eq!(
            (errno(41), errno(58), errno(134), errno(0)),
            (None, None, None, None)
        );
        assert_eq!(signal(libc::SIGSYS), "SIGSYS");
        assert_eq!(signal(libc::SIGIO), "SIGIO");
        assert_eq!(
            (signal(34), signal(99)),
            ("SIGRT2".into(), "signal 99".into())
        );
        assert_eq!(signal_code(libc::SIGSEGV, 1), "SEGV_MAPERR");
        assert_eq!(call(0), "read");
        assert_eq!(call(4000), "syscall_4000");
    }
}
