//! A call as people read it. In: numbers, and the memory behind pointers. Out: text.

use std::fmt::Write as _;

use crate::names;
use crate::table::{Arg, Call, lookup};

/// Contents of memory, of which the beginning is known.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    pub bytes: &'a [u8],
    /// How much there was.
    pub len: u64,
}

/// What is known of the memory behind an argument.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pointed<'a> {
    /// What the call passed to the kernel.
    pub passed: Option<Contents<'a>>,
    /// What the kernel wrote.
    pub written: Option<Contents<'a>>,
}

/// How many arguments are shown; of an unknown call all.
pub fn count(call: &Call) -> usize {
    match call.name {
        "?" => 6,
        _ => call.args.len(),
    }
}

/// Argument `n` of a call, with at most so many bytes of data.
pub fn argument(call: &Call, n: usize, value: u64, pointed: Pointed, most: usize) -> String {
    let kind = call.args.get(n).copied().unwrap_or(Arg::Hex);
    match kind {
        Arg::Int | Arg::Hex | Arg::By(_) => {
            if let Some(words) = names::argument(call.name, n, value) {
                return words;
            }
        }
        Arg::At if value as i32 == libc::AT_FDCWD => return "AT_FDCWD".into(),
        _ => {}
    }
    match (kind, pointed) {
        (Arg::Int, _) => integer(value),
        (Arg::Fd | Arg::At, _) => (value as i32).to_string(),
        (Arg::Hex, _) => format!("{value:#x}"),
        _ if value == 0 => "NULL".into(),
        (
            _,
            Pointed {
                passed: Some(contents),
                ..
            },
        ) => data(contents, most),
        (
            _,
            Pointed {
                written: Some(contents),
                ..
            },
        ) => written(call, n, contents, most),
        _ => format!("{value:#x}"),
    }
}

/// What the kernel wrote behind argument `n`.
pub fn written(call: &Call, n: usize, contents: Contents, most: usize) -> String {
    known(call.name, n, contents.bytes).unwrap_or_else(|| data(contents, most))
}

/// An int or a size: small negative numbers are what they are in C.
fn integer(value: u64) -> String {
    match value {
        0xffff_f000..=0xffff_ffff => (value as i32).to_string(),
        _ => (value as i64).to_string(),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(i32::from_le_bytes(bytes.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<i64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(i64::from_le_bytes(bytes.try_into().ok()?))
}

/// Structures that everybody knows.
fn known(call: &str, n: usize, bytes: &[u8]) -> Option<String> {
    let (word, long) = (|at| word(bytes, at), |at| long(bytes, at));
    Some(match (call, n) {
        ("clock_gettime" | "clock_getres", 1) => format!("{{{}.{:09}}}", long(0)?, long(8)?),
        ("gettimeofday", 0) => format!("{{{}.{:06}}}", long(0)?, long(8)?),
        ("pipe" | "pipe2", 0) | ("socketpair", 3) => format!("[{}, {}]", word(0)?, word(4)?),
        ("wait4", 1) => {
            let status = word(0)?;
            if libc::WIFEXITED(status) {
                format!("[exit {}]", libc::WEXITSTATUS(status))
            } else if libc::WIFSIGNALED(status) {
                format!("[killed by {}]", names::signal(libc::WTERMSIG(status)))
            } else if libc::WIFSTOPPED(status) {
                format!("[stopped by {}]", names::signal(libc::WSTOPSIG(status)))
            } else {
                format!("[{status:#x}]")
            }
        }
        _ => return None,
    })
}

/// What a call has returned: an error by its name, an address as one.
pub fn returned(nr: u32, value: i64) -> String {
    if let -4095..=-1 = value {
        return match names::errno(-value) {
            Some(name) => format!("-1 {name}"),
            None => value.to_string(),
        };
    }
    match lookup(nr.into()).name {
        "mmap" | "mremap" | "brk" | "shmat" => format!("{value:#x}"),
        _ => value.to_string(),
    }
}

/// Contents of memory: text in quotes, anything else in hexadecimal, cut if long.
pub fn data(contents: Contents, most: usize) -> String {
    let Contents { bytes, len } = contents;
    let shown = &bytes[..bytes.len().min(most)];
    let more = if len > shown.len() as u64 { "..." } else { "" };
    if shown.is_empty() && len > 0 {
        let ending = if len == 1 { "" } else { "s" };
        return format!("{{{} byte{ending}}}", grouped(len));
    }
    let readable = |b: &u8| matches!(b, b' '..=b'~' | b'\n' | b'\t' | b'\r');
    let odd = shown.iter().filter(|b| !readable(b)).count();
    if odd * 4 <= shown.len() {
        return format!("\"{}\"{more}", shown.escape_ascii());
    }
    let bytes: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    if more.is_empty() {
        format!("{{{}}}", bytes.join(" "))
    } else {
        format!("{{{}{more} {len} bytes}}", bytes.join(" "))
    }
}

/// A number with commas between thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i != 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// What a siginfo tells: the code, and sender or address.
pub fn siginfo(signo: i32, info: &[u8]) -> String {
    let Some(code) = word(info, 8) else {
        return String::new();
    };
    let mut out = format!(" {}", names::signal_code(signo, code));
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
    ];
    if code > 0 && faults.contains(&signo) {
        if let Some(addr) = long(info, 16) {
            let _ = write!(out, " at {addr:#x}");
        }
    } else if (matches!(code, 0 | -1 | -6) || (signo == libc::SIGCHLD && code > 0))
        && let Some(pid) = word(info, 16)
    {
        let _ = write!(out, " from process {pid}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(nr: i64, n: usize, value: u64, written: &[u8]) -> String {
        let contents = Contents {
            bytes: written,
            len: written.len() as u64,
        };
        let pointed = Pointed {
            passed: None,
            written: (!written.is_empty()).then_some(contents),
        };
        argument(lookup(nr as u64), n, value, pointed, 8)
    }

    #[test]
    fn arguments_are_words_numbers_and_data() {
        let cwd = libc::AT_FDCWD as u32 as u64;
        assert_eq!(shown(libc::SYS_openat, 0, cwd, b""), "AT_FDCWD");
        assert_eq!(shown(libc::SYS_openat, 2, 0, b""), "O_RDONLY");
        assert_eq!(shown(libc::SYS_read, 0, 3, b""), "3");
        assert_eq!(shown(libc::SYS_read, 1, 0x6000, b"hello\n"), "\"hello\\n\"");
        assert_eq!(
            shown(libc::SYS_read, 1, 0x6000, b"hello, world"),
            "\"hello, w\"..."
        );
        assert_eq!(shown(libc::SYS_read, 1, 0x6000, b""), "0x6000");
        assert_eq!(shown(libc::SYS_read, 1, 0, b""), "NULL");
        assert_eq!(
            shown(libc::SYS_pipe, 0, 0x6000, &[3, 0, 0, 0, 4, 0, 0, 0]),
            "[3, 4]"
        );
        assert_eq!(
            shown(libc::SYS_wait4, 1, 0x6000, &[11, 0, 0, 0]),
            "[killed by SIGSEGV]"
        );
        assert_eq!(count(lookup(u64::MAX)), 6);
    }

    #[test]
    fn results_are_errors_addresses_and_numbers() {
        assert_eq!(returned(0, -2), "-1 ENOENT");
        assert_eq!(returned(libc::SYS_brk as u32, 0x5000), "0x5000");
        assert_eq!(returned(0, 17), "17");
        let hidden = Contents {
            bytes: &[],
            len: 1200,
        };
        assert_eq!(data(hidden, 8), "{1,200 bytes}");
    }
}
