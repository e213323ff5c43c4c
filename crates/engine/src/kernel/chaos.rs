//! Chaos: what the kernel may do to a program and seldom does. In: a system call that is about to be answered. Out: the call with
//! other arguments, or an answer in its stead.
//!
//! All decisions come from a seeded generator. What comes of them is recorded like any other answer, so a replay knows
//! nothing of chaos. Nothing is done that a right program needn't be ready for:
//!
//! * `delays`: a thread gives its turn away at a call, for long; a process with one thread sleeps for up to two milliseconds.
//! * `short`: reads from pipes, stream sockets and terminals give less than is there, reads from files seldom; writes to them take
//!   less where the kernel may do that: more than a pipe takes at once, and never unless it could wait or be interrupted.
//! * `eintr`: waiting calls end with EINTR, where a handler of the program has returned before and the call isn't restarted
//!   after one, or where the kernel does so even without a handler (after a stop).
//! * `wakes`: whoever waits at a futex may be the first to be woken, and futex waits return early.
//! * `memory`: new memory is refused, once the program has done something else than starting up.

use super::Outcome;
use super::table::{Args, Call};
use crate::executor::Executor;
use crate::guest::threads::policy::Generator;
use crate::host::sigset::SigSet;
use crate::sys::err;
use crate::syscall;

/// What kinds of chaos are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    const NAMES: [&'static str; 5] = ["delays", "short", "eintr", "wakes", "memory"];
    const DELAYS: u8 = 1;
    const SHORT: u8 = 2;
    const EINTR: u8 = 4;
    const WAKES: u8 = 8;
    const MEMORY: u8 = 16;

    /// Reads names with commas between them; says which is unknown.
    pub fn parse(text: &str) -> Result<Kinds, String> {
        let mut kinds = Kinds(0);
        for word in text.split(',') {
            let bit = Kinds::NAMES.iter().position(|&name| name == word);
            let bit = bit.ok_or_else(|| {
                format!(
                    "{word:?} is no kind of chaos; there are {}",
                    Kinds::NAMES.join(", ")
                )
            })?;
            kinds.0 |= 1 << bit;
        }
        Ok(kinds)
    }

    pub fn names(self) -> String {
        let named = Kinds::NAMES.iter().enumerate();
        let chosen: Vec<&str> = named
            .filter(|(bit, _)| self.0 & 1 << bit != 0)
            .map(|(_, &name)| name)
            .collect();
        chosen.join(",")
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn from_bits(bits: u8) -> Kinds {
        Kinds(bits)
    }

    pub fn any(self) -> bool {
        self.0 != 0
    }

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// The kinds and where decisions come from; one for each process.
#[derive(Clone, Debug)]
pub struct Chaos {
    kinds: Kinds,
    generator: Generator,
    /// The program has done something that loading doesn't.
    started: bool,
    /// A handler has run and returned. Many programs have handlers that clean up and end the program: their calls never
    /// see EINTR.
    handled: bool,
}

/// One call in so many, each.
const DELAYED: u64 = 24;
const SHORTENED: u64 = 3;
const SHORTENED_FILE: u64 = 48;
const INTERRUPTED: u64 = 12;
const WOKEN_EARLY: u64 = 12;
const REFUSED: u64 = 24;
/// The longest sleep of a process with one thread, in nanoseconds.
const LONGEST_SLEEP: u64 = 2_000_000;

/// Calls that programs make before their own code runs.
const STARTING: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_openat,
    libc::SYS_open,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_stat,
    libc::SYS_close,
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_prlimit64,
    libc::SYS_getrandom,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_uname,
    libc::SYS_execve,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_sched_getaffinity,
    libc::SYS_poll,
];

impl Chaos {
    pub fn new(kinds: Kinds, seed: u64) -> Chaos {
        Chaos {
            kinds,
            generator: Generator::new(seed),
            started: false,
            handled: false,
        }
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.generator.below(many) == 0
    }

    /// Whether any waiter may be woken first.
    pub fn mixes_wakes(&self) -> bool {
        self.kinds.has(Kinds::WAKES)
    }
}

/// Something else than the call, if that is decided; otherwise perhaps other arguments.
pub fn interfere(ex: &mut Executor, call: &Call, args: &mut Args) -> Option<Outcome> {
    let nr = call.nr as i64;
    let chaos = ex.chaos();
    let kinds = chaos.kinds;
    if !kinds.any() {
        return None;
    }
    chaos.started |= !STARTING.contains(&nr);
    chaos.handled |= nr == libc::SYS_rt_sigreturn;
    if kinds.has(Kinds::DELAYS) && chaos.one_in(DELAYED) {
        delay(ex);
    }
    if kinds.has(Kinds::MEMORY) && asks_for_memory(nr, args) && refuse_memory(ex) {
        // A brk that fails returns where the heap ends.
        if nr == libc::SYS_brk {
            args[0] = 0;
            return None;
        }
        return Some(Outcome::Return(err(libc::ENOMEM)));
    }
    if kinds.has(Kinds::WAKES) && is_untimed_wait(nr, args) && ex.chaos().one_in(WOKEN_EARLY) {
        return Some(Outcome::Return(0));
    }
    if kinds.has(Kinds::EINTR) && ex.chaos().one_in(INTERRUPTED) && may_be_interrupted(ex, nr, args)
    {
        return Some(Outcome::Return(err(libc::EINTR)));
    }
    if kinds.has(Kinds::SHORT) {
        shorten(ex, nr, args);
    }
    None
}

/// The current thread, or a process that has but one, is late.
fn delay(ex: &mut Executor) {
    if ex.multi_threaded() {
        return ex.lose_turn();
    }
    let nanoseconds = ex.chaos().generator.below(LONGEST_SLEEP);
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds as i64,
    };
    // SAFETY: the kernel reads one timespec. A signal ends the sleep, which is as well.
    unsafe { syscall!(libc::SYS_nanosleep, &raw const time, 0) };
}

/// Private memory at no particular place, or a larger heap.
fn asks_for_memory(nr: i64, args: &Args) -> bool {
    let flags = args[3] as i32;
    let wanted = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
    let plain = flags & wanted == wanted && flags & libc::MAP_FIXED == 0;
    match nr {
        libc::SYS_mmap => plain,
        libc::SYS_brk => args[0] != 0,
        _ => false,
    }
}

fn refuse_memory(ex: &mut Executor) -> bool {
    let chaos = ex.chaos();
    chaos.started && chaos.one_in(REFUSED)
}

/// A futex wait without a timeout: the kernel may end it at any time.
fn is_untimed_wait(nr: i64, args: &Args) -> bool {
    let command = args[1] as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let waits = matches!(command, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET);
    nr == libc::SYS_futex && waits && args[3] == 0 && word_is(args[0], args[2] as u32)
}

/// Otherwise it wouldn't wait but say EAGAIN.
fn word_is(at: u64, value: u32) -> bool {
    crate::guest::access::read::<u32>(at).is_ok_and(|found| found == value)
}

/// Handlers that could run now, by what becomes of the call they interrupt.
#[derive(Default)]
struct Handlers {
    any: bool,
    /// One without SA_RESTART.
    final_one: bool,
}

fn handlers(ex: &mut Executor) -> Handlers {
    let mut found = Handlers::default();
    if !ex.chaos().handled {
        return found;
    }
    let mask = ex.current().signals.mask;
    for sig in 1..=31 {
        let blocked = mask.contains(sig) || SigSet::SYNCHRONOUS.contains(sig);
        if !blocked && ex.signals.has_handler(sig) {
            let restarts = ex.signals.action(sig).flags & libc::SA_RESTART as u64 != 0;
            found.any = true;
            found.final_one |= !restarts;
        }
    }
    found
}

/// Whether a signal could have ended this call with EINTR, by signal(7).
fn may_be_interrupted(ex: &mut Executor, nr: i64, args: &Args) -> bool {
    let waits = |timeout: u64| timeout as i32 != 0;
    match nr {
        // Also after a stop, without any handler.
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => waits(args[3]),
        libc::SYS_semop => true,
        // Never restarted.
        libc::SYS_poll => waits(args[2]) && handlers(ex).any,
        libc::SYS_select | libc::SYS_pselect6 | libc::SYS_ppoll => {
            let timeout = if nr == libc::SYS_ppoll {
                args[2]
            } else {
                args[4]
            };
            timeout == 0 && handlers(ex).any
        }
        libc::SYS_msgrcv | libc::SYS_msgsnd => {
            let flags = args[if nr == libc::SYS_msgrcv { 4 } else { 3 }] as i32;
            flags & libc::IPC_NOWAIT == 0 && handlers(ex).any
        }
        libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg => {
            let flags = match nr {
                libc::SYS_recvfrom => args[3] as i32,
                libc::SYS_recvmsg => args[2] as i32,
                _ => 0,
            };
            let waits = flags & libc::MSG_DONTWAIT == 0;
            waits && kind(args[0] as i32).is_some_and(Kind::waits) && handlers(ex).final_one
        }
        libc::SYS_accept | libc::SYS_accept4 => {
            kind(args[0] as i32).is_some_and(Kind::waits) && handlers(ex).final_one
        }
        libc::SYS_wait4 => args[2] as i32 & libc::WNOHANG == 0 && handlers(ex).final_one,
        libc::SYS_waitid => args[3] as i32 & libc::WNOHANG == 0 && handlers(ex).final_one,
        _ => false,
    }
}

/// What a descriptor leads to, where data may come in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Pipe,
    Stream,
    Terminal,
    File,
    /// A socket that isn't a stream.
    Packets,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    of: Of,
    nonblocking: bool,
    direct: bool,
}

impl Kind {
    fn waits(self) -> bool {
        self.of != Of::File && !self.nonblocking
    }
}

fn kind(fd: i32) -> Option<Kind> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let mut socket_type = 0i32;
    let mut len = size_of::<i32>() as u32;
    let mut attributes = [0u8; 64];
    // SAFETY: each call writes at most what the buffer it is given has room for; zeroed stats are valid.
    unsafe {
        let flags = syscall!(libc::SYS_fcntl, fd, libc::F_GETFL);
        if flags < 0 || syscall!(libc::SYS_fstat, fd, stat.as_mut_ptr()) != 0 {
            return None;
        }
        let of = match stat.assume_init().st_mode & libc::S_IFMT {
            libc::S_IFIFO => Of::Pipe,
            libc::S_IFREG => Of::File,
            libc::S_IFCHR => {
                let got = syscall!(libc::SYS_ioctl, fd, libc::TCGETS, attributes.as_mut_ptr());
                (got == 0).then_some(Of::Terminal)?
            }
            libc::S_IFSOCK => {
                let (level, name) = (libc::SOL_SOCKET, libc::SO_TYPE);
                let into = &raw mut socket_type;
                let got = syscall!(libc::SYS_getsockopt, fd, level, name, into, &raw mut len);
                match (got, socket_type) {
                    (0, libc::SOCK_STREAM) => Of::Stream,
                    _ => Of::Packets,
                }
            }
            // eventfd, timerfd, signalfd, inotify: whole items or nothing.
            _ => return None,
        };
        Some(Kind {
            of,
            nonblocking: flags as i32 & libc::O_NONBLOCK != 0,
            direct: flags as i32 & libc::O_DIRECT != 0,
        })
    }
}

/// Makes a read or write smaller.
fn shorten(ex: &mut Executor, nr: i64, args: &mut Args) {
    let reads = matches!(nr, libc::SYS_read | libc::SYS_recvfrom);
    let writes = matches!(nr, libc::SYS_write | libc::SYS_sendto);
    let count = args[2];
    if !(reads || writes) || count < 2 {
        return;
    }
    let flags = match nr {
        libc::SYS_recvfrom | libc::SYS_sendto => args[3] as i32,
        _ => 0,
    };
    if flags & (libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_TRUNC) != 0
        || !ex.chaos().one_in(SHORTENED)
    {
        return;
    }
    let Some(kind) = kind(args[0] as i32) else {
        return;
    };
    // A pipe in packet mode, a file that wants whole blocks.
    if kind.direct || kind.of == Of::Packets {
        return;
    }
    let fits = if reads {
        kind.of != Of::File || ex.chaos().one_in(SHORTENED_FILE / SHORTENED)
    } else {
        let nonblocking = kind.nonblocking || flags & libc::MSG_DONTWAIT != 0;
        let divisible = match kind.of {
            Of::Pipe => count > libc::PIPE_BUF as u64,
            Of::Stream | Of::Terminal => true,
            Of::File | Of::Packets => false,
        };
        divisible && (nonblocking || handlers(ex).any)
    };
    if fits {
        args[2] = 1 + ex.chaos().generator.below(count - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn names_of_kinds() {
        let kinds = Kinds::parse("short,wakes").unwrap();
        assert_eq!(kinds.names(), "short,wakes");
        assert_eq!(Kinds::from_bits(kinds.bits()), kinds);
        assert!(kinds.has(Kinds::SHORT) && !kinds.has(Kinds::DELAYS));
        assert!(Kinds::parse("short,odd").unwrap_err().contains("odd"));
    }

    #[test]
    fn descriptors_are_told_apart() {
        let (read, _write) = std::io::pipe().unwrap();
        assert_eq!(kind(read.as_raw_fd()).map(|kind| kind.of), Some(Of::Pipe));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(kind(file.as_raw_fd()).map(|kind| kind.of), Some(Of::File));
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(
            kind(stream.as_raw_fd()).map(|kind| kind.of),
            Some(Of::Stream)
        );
        let (packets, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        assert_eq!(
            kind(packets.as_raw_fd()).map(|kind| kind.of),
            Some(Of::Packets)
        );
        // SAFETY: makes a descriptor, closed below.
        let event = unsafe { libc::eventfd(0, 0) };
        assert!(kind(event).is_none());
        // SAFETY: it was just made.
        unsafe { libc::close(event) };
        let nowhere = std::fs::File::open("/dev/null").unwrap();
        assert!(kind(nowhere.as_raw_fd()).is_none() && kind(-1).is_none());
    }

    #[test]
    fn only_new_memory_at_no_particular_place_is_refused() {
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let mmap = |flags: u64| asks_for_memory(libc::SYS_mmap, &[0, 4096, 3, flags, !0, 0]);
        assert!(mmap(flags) && !mmap(flags | libc::MAP_FIXED as u64));
        assert!(!mmap(libc::MAP_PRIVATE as u64));
        assert!(!asks_for_memory(libc::SYS_brk, &[0; 6]));
    }
}
