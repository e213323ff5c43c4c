//! Reads a test file's header: the `// key: value` (or `# key: value`) lines in the
//! comment at its top. `tests/README.md` lists the keys.

use std::path::Path;
use std::time::Duration;
use std::{fs, iter};

/// How a run is expected to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Exit(i32),
    /// Death by a signal, by number.
    Signal(i32),
}

/// What a test file asks for.
#[derive(Clone, Debug)]
pub struct Header {
    /// Names of build variants (see [`crate::compile`]); empty: the default ones.
    pub variants: Vec<String>,
    /// Extra compiler arguments, for every variant.
    pub flags: Vec<String>,
    /// Shared libraries to build from `lib/`, found at run time through `$GUEST_LIBS`.
    pub libs: Vec<String>,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub stdin: String,
    pub status: Ending,
    /// Processor flags without which the test is skipped.
    pub cpu: Vec<String>,
    /// Programs without which a workload cannot run.
    pub needs: Vec<String>,
    /// What it does isn't recorded exactly (`docs/limits.md`).
    pub unrecordable: bool,
    /// Left to `make test-all`.
    pub long: bool,
    /// Left to `make test-all` when recorded.
    pub recorded_long: bool,
    /// It stops and continues processes itself, and nobody else may: a SIGCONT too many ends what it waits to see.
    pub stops: bool,
    pub timeout: Duration,
    /// Files of the working directory that may differ.
    pub ignore: Vec<String>,
}

impl Default for Header {
    fn default() -> Self {
        Header {
            variants: Vec::new(),
            flags: Vec::new(),
            libs: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            stdin: String::new(),
            status: Ending::Exit(0),
            cpu: Vec::new(),
            needs: Vec::new(),
            unrecordable: false,
            long: false,
            recorded_long: false,
            stops: false,
            timeout: Duration::from_secs(30),
            ignore: Vec::new(),
        }
    }
}

impl Header {
    /// Reads the header of the file at `path`; a key it doesn't know is a mistake.
    pub fn read(path: &Path) -> Header {
        let text = fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        Header::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Result<Header, String> {
        let mut header = Header::default();
        for line in comment_lines(text) {
            let Some((key, value)) = line.split_once(": ") else {
                continue;
            };
            let value = value.trim();
            let words = || value.split_whitespace().map(str::to_owned);
            match key.trim() {
                "variants" => header.variants.extend(words()),
                "flags" => header.flags.extend(words()),
                "lib" => header.libs.extend(words()),
                "args" => header.args.extend(words()),
                "env" => {
                    let (name, value) = value.split_once('=').ok_or("env: is NAME=VALUE")?;
                    header.env.push((name.to_owned(), value.to_owned()));
                }
                "stdin" => header.stdin.push_str(&value.replace("\\n", "\n")),
                "status" => header.status = ending(value)?,
                "cpu" => header.cpu.extend(words()),
                "needs" => header.needs.extend(words()),
                "recorded" if value == "no" => header.unrecordable = true,
                "run" if value == "long" => header.long = true,
                "recorded" if value == "long" => header.recorded_long = true,
                "stops" if value == "own" => header.stops = true,
                "timeout" => {
                    let seconds = value.parse().map_err(|_| "timeout: is in seconds")?;
                    header.timeout = Duration::from_secs(seconds);
                }
                "ignore" => header.ignore.extend(words()),
                key if !key.chars().all(|c| c.is_ascii_lowercase()) => {} // prose
                key => return Err(format!("unknown header line \"{key}:\"")),
            }
        }
        Ok(header)
    }
}

/// The leading comment without its first line, which says what the test is for.
fn comment_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut lines = text
        .lines()
        .skip_while(|line| line.starts_with("#!"))
        .map(|line| line.strip_prefix("//").or_else(|| line.strip_prefix("# ")));
    iter::from_fn(move || lines.next().flatten()).skip(1)
}

fn ending(value: &str) -> Result<Ending, String> {
    let parsed = match value.split_once(' ') {
        Some(("exit", code)) => code.parse().ok().map(Ending::Exit),
        Some(("signal", name)) => signal_number(name).map(Ending::Signal),
        _ => None,
    };
    parsed.ok_or_else(|| format!("status: is \"exit N\" or \"signal NAME\", not \"{value}\""))
}

/// The signals that guests die of.
const SIGNALS: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("XCPU", 24),
    ("SYS", 31),
];

fn signal_number(name: &str) -> Option<i32> {
    let known = SIGNALS.iter().find(|(known, _)| *known == name);
    known.map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_leading_comment() {
        let text =
            "// Faults on purpose.\n// status: signal SEGV\n// args: a b\n\nint x; // flags: no";
        let header = Header::parse(text).unwrap();
        assert_eq!(header.status, Ending::Signal(11));
        assert_eq!(header.args, ["a", "b"]);
        assert!(header.flags.is_empty());
    }

    #[test]
    fn a_misspelt_key_is_reported() {
        assert!(Header::parse("// Some test.\n// varants: pie\n").is_err());
    }
}
