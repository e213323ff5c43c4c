//! What is to be run, and how: the guest's identity (path, arguments), the user's switches, and
//! how a name becomes an executable file.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use clew_recording::script::Script;

use crate::kernel::chaos::Kinds;
use crate::loader::{self, LoadError, Resolved};

/// The guest program as `/proc/self` must show it.
#[derive(Debug, Default)]
pub struct Program {
    /// Resolved path of the executable (behind `#!`: the interpreter).
    pub exe: PathBuf,
    /// The path as given to exec, for AT_EXECFN and the process's name (behind `#!`: the script).
    pub execfn: CString,
    pub argv: Vec<CString>,
    pub envp: Vec<CString>,
}

/// Whose numbers `--stats` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatsFor {
    #[default]
    Nobody,
    /// The process that `clew run` started.
    Main,
    /// Each process, with its pid.
    All,
}

/// How guest threads share the executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sched {
    /// In turns; nobody waits long.
    #[default]
    Fair,
    /// Short turns of random length, in random order: to find races.
    Random,
    /// Random priorities that change at a few random places (probabilistic concurrency testing).
    Pct,
    /// By [`Options::script`]; in processes that it isn't for, as `Fair`.
    Script,
}

impl Sched {
    /// Those that are chosen by name.
    pub const ALL: [Sched; 3] = [Sched::Fair, Sched::Random, Sched::Pct];

    pub fn name(self) -> &'static str {
        match self {
            Sched::Fair => "fair",
            Sched::Random => "random",
            Sched::Pct => "pct",
            Sched::Script => "script",
        }
    }

    pub fn from_name(name: &str) -> Option<Sched> {
        Sched::ALL.into_iter().find(|sched| sched.name() == name)
    }
}

/// Switches that travel along every exec inside the guest's process tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub stats: StatsFor,
    /// Keep no saved translations.
    pub no_cache: bool,
    /// The per-user folder for what can be kept from run to run; none with `no_cache`.
    pub cache_dir: Option<PathBuf>,
    /// Show the guest no more than what most CPUs have, see [`crate::kernel::cpuid`].
    pub portable: bool,
    /// Recording, see [`crate::record`].
    pub record: Option<RecordOptions>,
    /// Debugging switches of the translator, see CONTRIBUTING.
    pub trace: bool,
    pub bisect: Option<u64>,
    /// Numbers of the blocks to show with their translation.
    pub dump: std::ops::Range<u64>,
    /// Compare with native execution for so many instructions, every so many ticks (0: varying).
    pub lockstep: Option<u64>,
    pub stretch: u64,
    /// Ticks between pieces that are compared (0: everything is).
    pub spread: u64,
    /// Mistranslate an instruction of that block.
    pub spoil: Option<u64>,
    /// Put instruments into all code and pass them: breakpoints at one of so many instructions (0:
    /// none), and memory that nobody touches watched.
    pub instruments: Option<u64>,
    /// Show the checksum of every page at the end of a recording and of a replay.
    pub pages: bool,
    /// Who runs when: the policy, the seed of its decisions, the depth of `pct`, how much work earlier runs
    /// were (ticks while there were several threads, and what calls count for).
    pub sched: Sched,
    pub seed: Option<u64>,
    pub depth: Option<u32>,
    pub length: Option<u64>,
    /// The turns to be followed, with [`Sched::Script`].
    pub script: Option<Arc<Script>>,
    /// What the kernel may do and seldom does.
    pub chaos: Kinds,
    /// Clocks, sleeps and timers follow [`crate::host::virtual_clock`].
    pub virtual_time: bool,
    /// Threads that wait for each other for good end the process.
    pub stop_at_deadlock: bool,
    /// A line for each turn.
    pub turns: bool,
    /// A line for each process, about pages of shared memory that changed hands.
    pub sharing: bool,
    /// Where only the tail is kept: another part after so many events, whatever the writer wants.
    pub parts: Option<u64>,
    /// Have signals that kill by default come to the engine first, as while recording.
    pub hook: bool,
    /// Tell about system calls that the table doesn't know.
    pub warn_calls: bool,
}

/// What a recorded process knows about its recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordOptions {
    /// Which files are the standard output and error of the recording, see `record::output`.
    pub standard: [u64; 4],
    /// The stream of this process that ended in the exec under way, or 0.
    pub before: u32,
    /// The stream that was reserved for this process, or 0.
    pub stream: u32,
    /// This process is the one that began the recording.
    pub first: bool,
}

impl Options {
    /// Takes the switches in `CLEW_DEBUG`: words with commas between them. Says which word is
    /// unknown.
    pub fn debug(&mut self, words: &str) -> Result<(), String> {
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let number = |n: &str| n.parse().map_err(|_| word.to_string());
            match word.split_once('=') {
                None if word == "trace" => self.trace = true,
                None if word == "pages" => self.pages = true,
                None if word == "calls" => self.warn_calls = true,
                None if word == "turns" => self.turns = true,
                None if word == "sharing" => self.sharing = true,
                None if word == "hook" => self.hook = true,
                None if word == "lockstep" => self.lockstep = Some(u64::MAX),
                Some(("bisect", n)) => self.bisect = Some(number(n)?),
                Some(("lockstep", n)) => self.lockstep = Some(number(n)?),
                Some(("stretch", n)) => self.stretch = number(n)?,
                Some(("spread", n)) => self.spread = number(n)?,
                Some(("spoil", n)) => self.spoil = Some(number(n)?),
                Some(("parts", n)) => self.parts = Some(number(n)?),
                Some(("instruments", n)) => self.instruments = Some(number(n)?),
                Some(("dump", blocks)) => {
                    self.dump = range(blocks).ok_or_else(|| word.to_string())?;
                }
                _ => return Err(word.to_string()),
            }
        }
        Ok(())
    }
}

/// `7` or `7..12`.
fn range(text: &str) -> Option<std::ops::Range<u64>> {
    match text.split_once("..") {
        Some((from, to)) => Some(from.parse().ok()?..to.parse().ok()?),
        None => text.parse().ok().map(|n: u64| n..n.saturating_add(1)),
    }
}

/// Finds a program as a shell does: a name with a slash is a path; others are looked up in
/// `search` (PATH), where files that can't be executed are passed over if a later one can.
pub fn find(name: &OsStr, search: Option<&OsStr>, argv: &[CString]) -> Result<Resolved, LoadError> {
    let missing = || LoadError::Open {
        path: name.into(),
        errno: libc::ENOENT,
    };
    let try_path = |path: &[u8]| {
        let path = CString::new(path).map_err(|_| missing())?;
        let found = loader::resolve(&path, argv)?;
        loader::check(&found)?;
        Ok(found)
    };
    if name.as_bytes().contains(&b'/') {
        return try_path(name.as_bytes());
    }
    if name.is_empty() {
        return Err(missing());
    }
    let default = OsStr::new("/usr/local/bin:/usr/bin:/bin");
    let mut why = missing();
    for folder in search.unwrap_or(default).as_bytes().split(|&b| b == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let path = [folder, b"/", name.as_bytes()].concat();
        match try_path(&path) {
            Err(LoadError::Open { errno, .. }) if errno != libc::EACCES => {}
            // A folder of that name is nobody's program.
            Err(LoadError::Open { path, .. }) if path.is_dir() => {}
            Err(error @ LoadError::Open { .. }) => why = error,
            found => return found,
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("clew-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn file(&self, name: &str, text: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn names_are_looked_up_in_path() {
        let folder = Folder::new("path");
        let dir = folder.0.as_os_str();
        let look = |name: &str| find(OsStr::new(name), Some(dir), &[]);
        let target = folder.file("run", b"#!/bin/sh\n", 0o755);
        let found = look("run").unwrap();
        assert_eq!(found.execfn.to_bytes(), target.as_os_str().as_bytes());
        assert_eq!(look("none").unwrap_err().exit_status(), 127);
        folder.file("plain", b"", 0o644);
        assert_eq!(look("plain").unwrap_err().exit_status(), 126);
        fs::create_dir(folder.0.join("inner")).unwrap();
        assert_eq!(look("inner").unwrap_err().exit_status(), 127);
        let gone = find(OsStr::new("/no/such"), None, &[]).unwrap_err();
        assert_eq!(gone.exit_status(), 127);
        assert!(find(OsStr::new("sh"), None, &[]).is_ok());
    }

    #[test]
    fn debug_words() {
        let mut options = Options::default();
        assert_eq!(options.debug("trace,bisect=12,calls,dump=3..5"), Ok(()));
        assert_eq!(options.dump, 3..5);
        assert_eq!(options.debug("dump=7"), Ok(()));
        assert_eq!(options.dump, 7..8);
        assert!(options.trace && options.warn_calls);
        assert_eq!(options.debug("turns,hook"), Ok(()));
        assert!(options.turns && options.hook);
        assert_eq!(options.bisect, Some(12));
        assert_eq!(options.debug("lockstep"), Ok(()));
        assert_eq!(options.lockstep, Some(u64::MAX));
        assert_eq!(
            options.debug("lockstep=900,stretch=2,spoil=5,instruments=3"),
            Ok(())
        );
        let numbers = (options.lockstep, options.stretch, options.spoil);
        assert_eq!(numbers, (Some(900), 2, Some(5)));
        assert_eq!(options.debug("spoil=x"), Err("spoil=x".into()));
        assert_eq!(options.debug("nonsense"), Err("nonsense".into()));
    }
}
