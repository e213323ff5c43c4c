//! What one clew process tells the next when the guest execs: one environment variable, last in
//! the environment, which the new engine takes away before the guest looks.
//!
//! `CLEW_ENGINE=1,key=value,...`: values are percent-encoded where they aren't plain.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use crate::kernel::Own;
use crate::kernel::chaos::Kinds;
use crate::kernel::descriptors::Hidden;
use crate::kernel::seccomp::Rules;
use crate::program::{Options, RecordOptions, Sched, StatsFor};
use crate::stats::Stats;

pub const VARIABLE: &str = "CLEW_ENGINE";
const VERSION: &str = "1";

/// All that the new process must know besides argv and envp.
#[derive(Clone, Default)]
pub struct Handover {
    pub options: Options,
    /// What to load.
    pub exe: CString,
    /// The path as given to exec.
    pub execfn: CString,
    /// An open descriptor of what to load, when its path doesn't lead there; -1 otherwise.
    pub exe_fd: i32,
    pub own: Own,
    /// Counters so far: a process that execs goes on counting.
    pub stats: Stats,
}

/// A handover that this clew can't read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the last variable of the environment, CLEW_ENGINE, isn't one that this clew has made; a program under clew was \
     started by another version of it, or the variable was set by hand: unset it"
)]
pub struct NotUnderstood;

impl Handover {
    /// The whole variable, `CLEW_ENGINE=...`.
    pub fn encode(&self) -> CString {
        let mut text = format!("{VARIABLE}={VERSION}");
        let mut field = |key: &str, value: &[u8]| {
            text.push(',');
            text.push_str(key);
            text.push('=');
            escape(value, &mut text);
        };
        field("exe", self.exe.to_bytes());
        if self.execfn != self.exe {
            field("fn", self.execfn.to_bytes());
        }
        let mut number = |key: &str, value: Option<i64>| {
            if let Some(value) = value {
                field(key, value.to_string().as_bytes());
            }
        };
        let open = |fd: i32| (fd >= 0).then_some(fd as i64);
        let flag = |set: bool| set.then_some(1);
        number("fd", open(self.exe_fd));
        number("self", open(self.own.hidden.itself));
        number("err", open(self.own.hidden.stats));
        number("ring", open(self.own.hidden.recording));
        number("files", open(self.own.hidden.files));
        number("script", open(self.own.hidden.script));
        number("nocache", flag(self.options.no_cache));
        number("portable", flag(self.options.portable));
        number("trace", flag(self.options.trace));
        number("pages", flag(self.options.pages));
        number("calls", flag(self.options.warn_calls));
        number("lockstep", self.options.lockstep.map(|n| n as i64));
        number(
            "stretch",
            Some(self.options.stretch as i64).filter(|&n| n != 0),
        );
        number(
            "spread",
            Some(self.options.spread as i64).filter(|&n| n != 0),
        );
        number("bisect", self.options.bisect.map(|n| n as i64));
        number("instruments", self.options.instruments.map(|n| n as i64));
        number("seed", self.options.seed.map(|n| n as i64));
        number("depth", self.options.depth.map(i64::from));
        number("length", self.options.length.map(|n| n as i64));
        let chaos = self.options.chaos;
        number("chaos", chaos.any().then_some(i64::from(chaos.bits())));
        number("deadlock", flag(self.options.stop_at_deadlock));
        number("virtual", flag(self.options.virtual_time));
        number("turns", flag(self.options.turns));
        number("sharing", flag(self.options.sharing));
        number("hook", flag(self.options.hook));
        number("parts", self.options.parts.map(|n| n as i64));
        let some = |n: u64| Some(n as i64).filter(|&n| n != 0);
        number("line", some(self.own.lineage));
        number("children", some(self.own.children));
        number("tsc", flag(self.own.tsc_faults));
        number("mem", flag(self.own.memory_files));
        if let Some(rules) = &self.own.rules {
            field("rules", &rules.to_bytes());
        }
        // A script is a file, and too long for a variable.
        if !matches!(self.options.sched, Sched::Fair | Sched::Script) {
            field("sched", self.options.sched.name().as_bytes());
        }
        if let Some(record) = &self.options.record {
            let [a, b, c, d] = record.standard;
            field(
                "rec",
                join(&[
                    a,
                    b,
                    c,
                    d,
                    record.before as u64,
                    record.stream as u64,
                    record.first as u64,
                ])
                .as_bytes(),
            );
        }
        if let Some(folder) = &self.options.cache_dir {
            field("cache", folder.as_os_str().as_bytes());
        }
        let dump = &self.options.dump;
        if !dump.is_empty() {
            field("dump", join(&[dump.start, dump.end]).as_bytes());
        }
        if let Some(limit) = self.own.address_space {
            field("as", join(&limit).as_bytes());
        }
        match self.options.stats {
            StatsFor::Nobody => {}
            StatsFor::Main => field("stats", b"main"),
            StatsFor::All => field("stats", b"all"),
        }
        if self.options.stats != StatsFor::Nobody {
            field("count", join(&self.stats.to_words()).as_bytes());
        }
        CString::new(text).expect("NUL is encoded")
    }

    /// Reads the variable: `None` if it isn't ours, an error if it can't be understood. Then nothing is known of the
    /// program to run, and arguments are the guest's, not the command's.
    pub fn decode(variable: &CStr) -> Option<Result<Handover, NotUnderstood>> {
        let value = variable.to_bytes().strip_prefix(VARIABLE.as_bytes())?;
        let value = value.strip_prefix(b"=")?;
        let text = std::str::from_utf8(value).ok();
        Some(text.and_then(Handover::read).ok_or(NotUnderstood))
    }

    fn read(text: &str) -> Option<Handover> {
        let mut fields = text.split(',');
        if fields.next()? != VERSION {
            return None;
        }
        let mut handover = Handover {
            exe_fd: -1,
            ..Handover::default()
        };
        let mut hidden = Hidden::default();
        let options = &mut handover.options;
        for field in fields {
            let (key, value) = field.split_once('=')?;
            let bytes = unescape(value)?;
            let number = || std::str::from_utf8(&bytes).ok()?.parse::<i64>().ok();
            match key {
                "exe" => {
                    handover.exe = CString::new(bytes).ok()?;
                    handover.execfn = handover.exe.clone();
                }
                "fn" => handover.execfn = CString::new(bytes).ok()?,
                "fd" => handover.exe_fd = number()? as i32,
                "self" => hidden.itself = number()? as i32,
                "err" => hidden.stats = number()? as i32,
                "files" => hidden.files = number()? as i32,
                "script" => hidden.script = number()? as i32,
                "nocache" => options.no_cache = true,
                "portable" => options.portable = true,
                "trace" => options.trace = true,
                "pages" => options.pages = true,
                "calls" => options.warn_calls = true,
                "bisect" => options.bisect = Some(number()? as u64),
                "instruments" => options.instruments = Some(number()? as u64),
                "sched" => options.sched = Sched::from_name(std::str::from_utf8(&bytes).ok()?)?,
                "seed" => options.seed = Some(number()? as u64),
                "depth" => options.depth = Some(number()? as u32),
                "length" => options.length = Some(number()? as u64),
                "chaos" => options.chaos = Kinds::from_bits(number()? as u8),
                "deadlock" => options.stop_at_deadlock = true,
                "virtual" => options.virtual_time = true,
                "turns" => options.turns = true,
                "sharing" => options.sharing = true,
                "hook" => options.hook = true,
                "parts" => options.parts = Some(number()? as u64),
                "line" => handover.own.lineage = number()? as u64,
                "children" => handover.own.children = number()? as u64,
                "tsc" => handover.own.tsc_faults = true,
                "mem" => handover.own.memory_files = true,
                "rules" => handover.own.rules = Some(Rules::from_bytes(&bytes)?.into()),
                "lockstep" => options.lockstep = Some(number()? as u64),
                "stretch" => options.stretch = number()? as u64,
                "spread" => options.spread = number()? as u64,
                "dump" => match split(&bytes)?[..] {
                    [from, to] => options.dump = from..to,
                    _ => return None,
                },
                "cache" => options.cache_dir = Some(OsStr::from_bytes(&bytes).into()),
                "as" => handover.own.address_space = split(&bytes)?.try_into().ok(),
                "rec" => match split(&bytes)?[..] {
                    [a, b, c, d, before, stream, first] => {
                        options.record = Some(RecordOptions {
                            standard: [a, b, c, d],
                            before: before as u32,
                            stream: stream as u32,
                            first: first != 0,
                        });
                    }
                    _ => return None,
                },
                "ring" => hidden.recording = number()? as i32,
                "stats" if bytes == b"main" => options.stats = StatsFor::Main,
                "stats" => options.stats = StatsFor::All,
                "count" => handover.stats = Stats::from_words(&split(&bytes)?)?,
                _ => return None,
            }
        }
        // What to run must be said.
        let whole = !handover.exe.is_empty() || handover.exe_fd >= 0;
        handover.own.hidden = hidden;
        whole.then_some(handover)
    }
}

fn join(words: &[u64]) -> String {
    let words: Vec<String> = words.iter().map(u64::to_string).collect();
    words.join("+")
}

fn split(bytes: &[u8]) -> Option<Vec<u64>> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.split('+').map(|word| word.parse().ok()).collect()
}

fn escape(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push('%');
            out.push(DIGITS[(byte >> 4) as usize] as char);
            out.push(DIGITS[(byte & 15) as usize] as char);
        }
    }
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives() {
        let mut sent = Handover {
            exe: c"/bin/a b,c=%\xff".to_owned(),
            execfn: c"./script".to_owned(),
            exe_fd: 5,
            ..Handover::default()
        };
        sent.options = Options {
            stats: StatsFor::Main,
            no_cache: true,
            portable: true,
            cache_dir: Some("/home/x/.cache/clew".into()),
            record: Some(RecordOptions {
                standard: [1, 2, 3, 4],
                before: 9,
                stream: 10,
                first: true,
            }),
            trace: true,
            bisect: Some(u64::MAX),
            instruments: Some(5),
            warn_calls: true,
            dump: 3..9,
            lockstep: Some(u64::MAX),
            stretch: 7,
            spread: 3,
            sched: Sched::Pct,
            seed: Some(u64::MAX),
            depth: Some(4),
            length: Some(90_000),
            chaos: Kinds::from_bits(5),
            stop_at_deadlock: true,
            turns: true,
            sharing: true,
            parts: Some(500),
            hook: true,
            ..Options::default()
        };
        sent.own.hidden = Hidden {
            itself: 1000,
            stats: 1001,
            recording: 1002,
            files: 1003,
            script: 1004,
            fixed: false,
        };
        sent.own.lineage = u64::MAX - 1;
        sent.own.children = 3;
        sent.own.tsc_faults = true;
        sent.own.memory_files = true;
        sent.own.rules = Some(Rules::Strict.into());
        sent.own.address_space = Some([1 << 30, u64::MAX]);
        sent.stats.ticks = 77;
        sent.stats.is_main = true;
        let got = Handover::decode(&sent.encode()).unwrap().unwrap();
        assert_eq!(got.options, sent.options);
        assert_eq!((&got.exe, &got.execfn), (&sent.exe, &sent.execfn));
        assert_eq!(got.exe_fd, 5);
        assert_eq!(got.own.hidden, sent.own.hidden);
        assert_eq!((got.own.lineage, got.own.children), (u64::MAX - 1, 3));
        assert_eq!(got.own.address_space, sent.own.address_space);
        assert!(got.own.tsc_faults && got.own.memory_files);
        assert_eq!(got.own.rules, sent.own.rules);
        assert_eq!(got.stats, sent.stats);
    }

    /// A guest can set the variable to anything before an exec.
    #[test]
    fn damage_does_no_harm() {
        let whole = Handover {
            exe: c"/bin/a b,c=%\xff".to_owned(),
            exe_fd: 5,
            options: Options {
                bisect: Some(u64::MAX),
                dump: 3..9,
                sched: Sched::Pct,
                seed: Some(7),
                stats: StatsFor::All,
                ..Options::default()
            },
            ..Handover::default()
        };
        let whole = whole.encode().into_bytes();
        let more = std::env::var("CLEW_DAMAGE").ok();
        let more: u64 = more.and_then(|more| more.parse().ok()).unwrap_or(1);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ more;
        let mut below = |limit: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % limit as u64) as usize
        };
        for _ in 0..20_000 * more {
            let mut bytes = whole.clone();
            for _ in 0..1 + below(4) {
                let at = VARIABLE.len() + 1 + below(bytes.len() - VARIABLE.len() - 1);
                let end = bytes.len().min(at + below(12));
                match below(5) {
                    0 => bytes[at] = b",=%-0123456789abcdef"[below(20)],
                    1 => bytes[at] = 1 + below(255) as u8,
                    2 => drop(bytes.drain(at..end)),
                    3 => bytes.extend_from_within(at..end),
                    _ => bytes.truncate(at + 1),
                }
                if bytes.len() < VARIABLE.len() + 4 {
                    break;
                }
            }
            let variable = CString::new(bytes).unwrap();
            let _ = Handover::decode(&variable);
        }
    }

    #[test]
    fn short_when_there_is_little_to_say() {
        let sent = Handover {
            exe: c"/bin/true".to_owned(),
            execfn: c"/bin/true".to_owned(),
            exe_fd: -1,
            ..Handover::default()
        };
        assert_eq!(sent.encode().as_c_str(), c"CLEW_ENGINE=1,exe=/bin/true");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            c"CLEW_ENGINE=",
            c"CLEW_ENGINE=1",
            c"CLEW_ENGINE=0,exe=/bin/true",
            c"CLEW_ENGINE=1,exe",
            c"CLEW_ENGINE=1,exe=%0",
            c"CLEW_ENGINE=1,exe=/bin/true,what=1",
            c"CLEW_ENGINE=1,exe=/bin/true,fd=x",
            c"CLEW_ENGINE=1,exe=\xff",
        ] {
            let refused = Handover::decode(text).is_some_and(|read| read.is_err());
            assert!(refused, "{text:?}");
        }
        for text in [
            c"PATH=/bin",
            c"CLEW_ENGINE",
            c"CLEW_ENGINES=1,exe=/bin/true",
        ] {
            assert!(Handover::decode(text).is_none(), "{text:?}");
        }
    }
}
