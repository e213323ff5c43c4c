//! What people read: sizes, times, counts, and strings from strangers made harmless.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

/// Writes to stdout. A reader that has gone away has seen enough.
pub fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Says what is wrong; the exit status for it.
pub fn failed(error: &dyn std::fmt::Display) -> i32 {
    eprintln!("clew: {}", plain(&error.to_string()));
    1
}

/// The same, with a status of its own.
pub fn failed_with(error: &dyn std::fmt::Display, status: i32) -> i32 {
    failed(error);
    status
}

pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

pub fn ago(age: Duration) -> String {
    match age.as_secs() {
        s @ 0..100 => format!("{s} s"),
        s @ 100..6000 => format!("{} min", s / 60),
        s @ 6000..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

/// A span of time, in three digits or so.
pub fn duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0..1_000_000 => format!("{} µs", ns / 1000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        1_000_000_000..100_000_000_000 => format!("{seconds:.1} s"),
        100_000_000_000..6_000_000_000_000 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// A moment in this machine's time zone, from nanoseconds since 1970.
pub fn when(ns: u64) -> String {
    let seconds = (ns / 1_000_000_000) as i64;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: reads one number, writes one tm, of which all bytes may be zero.
    let parts = unsafe {
        if libc::localtime_r(&raw const seconds, parts.as_mut_ptr()).is_null() {
            return "?".into();
        }
        parts.assume_init()
    };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        1900 + i64::from(parts.tm_year),
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

/// A number with commas between thousands.
pub fn count(n: u64) -> String {
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

/// "1 event", "2 events".
pub fn counted(n: u64, what: &str) -> String {
    // Statuses are "status", not "statu".
    let ending = match (n, what.ends_with("ss")) {
        (1, _) => "",
        (_, true) => "es",
        _ => "s",
    };
    format!("{} {what}{ending}", count(n))
}

/// A string without what a terminal would obey: it may be a stranger's.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Direction marks can make a line read as another.
        let odd = c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if odd {
            let _ = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Words of a command line, quoted where a shell needs it.
pub fn command(argv: &[String]) -> String {
    let word = |word: &String| {
        let safe = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
        if !word.is_empty() && word.chars().all(safe) {
            word.clone()
        } else {
            format!("'{}'", plain(word).replace('\'', "'\\''"))
        }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// At most so many characters.
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A JSON string.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Colours, on a terminal that may have them.
#[derive(Clone, Copy)]
pub struct Style {
    on: bool,
}

impl Style {
    pub fn stdout() -> Style {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Style {
            on: std::io::stdout().is_terminal() && !plain,
        }
    }

    #[cfg(test)]
    pub fn none() -> Style {
        Style { on: false }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.into()
        }
    }

    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub fn warn(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
}

/// Columns with two spaces between them. A column whose name begins with `>` is aligned to the right.
pub fn table(
    names: &[&str],
    rows: &[Vec<String>],
    paint: impl Fn(usize, &str, &str) -> String,
) -> String {
    let mut widths: Vec<usize> = names
        .iter()
        .map(|name| name.trim_start_matches('>').chars().count())
        .collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let heads: Vec<String> = names
        .iter()
        .map(|name| name.trim_start_matches('>').to_string())
        .collect();
    for (n, row) in std::iter::once(&heads).chain(rows).enumerate() {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let fill = " ".repeat(widths[column] - cell.chars().count());
            let painted = if n == 0 {
                paint(usize::MAX, names[column], cell)
            } else {
                paint(n - 1, names[column], cell)
            };
            if column != 0 {
                line.push_str("  ");
            }
            if names[column].starts_with('>') {
                line.push_str(&fill);
                line.push_str(&painted);
            } else {
                line.push_str(&painted);
                line.push_str(&fill);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_counts_are_short() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(3 << 20), "3.0 MiB");
        assert_eq!(size(1 << 30), "1.0 GiB");
        assert_eq!(ago(Duration::from_secs(3600)), "60 min");
        assert_eq!(ago(Duration::from_secs(10 * 86_400)), "10 days");
        assert_eq!(duration(999_999), "999 µs");
        assert_eq!(duration(12_000_000), "12 ms");
        assert_eq!(duration(12_340_000_000), "12.3 s");
        assert_eq!(duration(86_400_000_000_000), "24.0 h");
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "event"), "1 event");
        assert_eq!(counted(1204, "process"), "1,204 processes");
    }

    #[test]
    fn strings_are_valid_json() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }

    #[test]
    fn a_strangers_strings_do_nothing() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\u{a}");
        assert_eq!(plain("\u{202e}größe"), "\\u{202e}größe");
        let argv = ["sh", "-c", "echo 'x'", ""].map(String::from);
        assert_eq!(command(&argv), r"sh -c 'echo '\''x'\''' ''");
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("abcd", 4), "abcd");
    }

    #[test]
    fn tables_align() {
        let rows = [
            vec!["a".into(), "1".into()],
            vec!["bcd".into(), "100".into()],
        ];
        let text = table(&["name", ">n"], &rows, |_, _, cell| cell.into());
        assert_eq!(text, "name    n\na       1\nbcd   100\n");
    }
}
