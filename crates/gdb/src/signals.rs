//! Signal numbers. In: Linux's. Out: gdb's own, which the protocol uses, and back.

/// (Linux, gdb), for those up to 31; the real-time ones follow a rule.
const PAIRS: &[(i32, i32)] = &[
    (libc::SIGHUP, 1),
    (libc::SIGINT, 2),
    (libc::SIGQUIT, 3),
    (libc::SIGILL, 4),
    (libc::SIGTRAP, 5),
    (libc::SIGABRT, 6),
    (libc::SIGFPE, 8),
    (libc::SIGKILL, 9),
    (libc::SIGBUS, 10),
    (libc::SIGSEGV, 11),
    (libc::SIGSYS, 12),
    (libc::SIGPIPE, 13),
    (libc::SIGALRM, 14),
    (libc::SIGTERM, 15),
    (libc::SIGURG, 16),
    (libc::SIGSTOP, 17),
    (libc::SIGTSTP, 18),
    (libc::SIGCONT, 19),
    (libc::SIGCHLD, 20),
    (libc::SIGTTIN, 21),
    (libc::SIGTTOU, 22),
    (libc::SIGIO, 23),
    (libc::SIGXCPU, 24),
    (libc::SIGXFSZ, 25),
    (libc::SIGVTALRM, 26),
    (libc::SIGPROF, 27),
    (libc::SIGWINCH, 28),
    (libc::SIGUSR1, 30),
    (libc::SIGUSR2, 31),
    (libc::SIGPWR, 32),
];
/// gdb counts 33 to 63 from here; 32 and 64 came to its list later.
const GDB_REALTIME_33: i32 = 45;
const GDB_REALTIME_32: i32 = 77;
const GDB_REALTIME_64: i32 = 78;
const GDB_UNKNOWN: i32 = 143;

pub fn to_gdb(signo: i32) -> i32 {
    match signo {
        32 => GDB_REALTIME_32,
        33..=63 => GDB_REALTIME_33 + signo - 33,
        64 => GDB_REALTIME_64,
        _ => PAIRS
            .iter()
            .find(|(linux, _)| *linux == signo)
            .map_or(GDB_UNKNOWN, |(_, gdb)| *gdb),
    }
}

pub fn from_gdb(number: i32) -> Option<i32> {
    match number {
        GDB_REALTIME_32 => Some(32),
        GDB_REALTIME_64 => Some(64),
        45..=75 => Some(number - GDB_REALTIME_33 + 33),
        _ => PAIRS
            .iter()
            .find(|(_, gdb)| *gdb == number)
            .map(|(linux, _)| *linux),
    }
}

/// Bit n - 1 for signal n: those of gdb's list `b;1c;...`, in hexadecimal.
pub fn mask(list: &[u8]) -> u64 {
    let numbers = list.split(|&byte| byte == b';');
    numbers
        .filter_map(|digits| from_gdb(crate::hex::number(digits)? as i32))
        .fold(0, |mask, signo| mask | 1 << (signo - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        for signo in (1..=64).filter(|&signo| signo != libc::SIGSTKFLT) {
            assert_eq!(from_gdb(to_gdb(signo)), Some(signo), "{signo}");
        }
        assert_eq!(to_gdb(libc::SIGSEGV), 11);
        assert_eq!(to_gdb(libc::SIGCHLD), 20);
        assert_eq!(to_gdb(libc::SIGSTKFLT), GDB_UNKNOWN);
        assert_eq!(mask(b"b;14;zz"), 1 << 10 | 1 << 16);
        assert_eq!(mask(b""), 0);
    }
}
