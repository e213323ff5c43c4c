//! Guests for these tests: compiled, recorded by the command, opened as timelines.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clew_engine::program::Options;
use clew_recording::reader::Recording;
use clew_timeline::{Next, Registers, Settings, Timeline};
use libtest_mimic::{Arguments, Trial};

/// Runs these by name on this thread, the only one: timelines fork.
pub fn tests(trials: Vec<Trial>) -> ! {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit()
}

pub fn test(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        body();
        Ok(())
    })
}

/// A value that a watcher, which may be asked in any thread, shares with its test.
pub struct Shared<T>(Arc<Mutex<T>>);

impl<T: Copy> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        Shared(Arc::new(Mutex::new(value)))
    }

    pub fn get(&self) -> T {
        *self.0.lock().unwrap()
    }

    pub fn set(&self, value: T) {
        *self.0.lock().unwrap() = value;
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(self.0.clone())
    }
}

/// What a place looks like.
#[derive(Clone, Debug)]
pub struct State {
    pub registers: BTreeMap<u32, Registers>,
    memory: u64,
    /// It is one position behind the one before it.
    pub follows: bool,
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.registers == other.registers && self.memory == other.memory
    }
}

pub fn state(timeline: &mut Timeline) -> State {
    let threads = timeline.threads().unwrap();
    let registers = threads
        .iter()
        .map(|thread| {
            let registers = timeline.registers(thread.number).unwrap();
            (thread.number, registers.expect("a thread that is listed"))
        })
        .collect();
    let mut hash = DefaultHasher::new();
    for mapping in timeline.mappings().unwrap() {
        (mapping.start, mapping.end, mapping.prot).hash(&mut hash);
        const WRITE: u32 = 2;
        if mapping.prot & WRITE == 0 {
            continue;
        }
        // Of stacks, which are large and empty, the part in use.
        let inside = |sp: &u64| (mapping.start..mapping.end).contains(sp);
        let mut sps = threads.iter().map(|thread| thread.sp).filter(inside);
        let from = match mapping.end - mapping.start > 1 << 20 {
            true => sps
                .next()
                .map_or(mapping.start, |sp| sp.saturating_sub(4096)),
            false => mapping.start,
        };
        let from = from.max(mapping.start);
        let mut bytes = vec![0; (mapping.end - from).min(1 << 20) as usize];
        let len = timeline.read(from, &mut bytes).unwrap();
        bytes[..len].hash(&mut hash);
    }
    State {
        registers,
        memory: hash.finish(),
        follows: false,
    }
}

pub fn is_last(next: Next) -> bool {
    matches!(
        next,
        Next::Exit { .. } | Next::Killed { .. } | Next::CutOff | Next::Exec
    )
}

/// Numbers that look random (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end.max(1)
    }
}

/// The folder that these tests fill: beside the test itself.
pub fn scratch() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("clew-timeline-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The command under test: `CLEW`, or the one that was built beside this test.
pub fn clew() -> PathBuf {
    if let Some(path) = std::env::var_os("CLEW") {
        return path.into();
    }
    let here = std::env::current_exe().unwrap();
    let built = here.parent().and_then(Path::parent).unwrap().join("clew");
    assert!(
        built.exists(),
        "{} isn't built: cargo build --release -p clew",
        built.display()
    );
    built
}

/// Compiles and records a guest; its recording.
pub fn record(guest: &str) -> PathBuf {
    record_with(guest, &[], &[])
}

/// With options of `clew record`, and the program's arguments.
pub fn record_with(guest: &str, options: &[&str], arguments: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/guests/{guest}.c"));
    let folder = scratch();
    let program = folder.join(guest);
    let compiled = Command::new("cc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .unwrap();
    assert!(compiled.success());
    let mut line = vec![program.to_str().unwrap()];
    line.extend(arguments);
    record_program(options, &line)
}

/// Records a program, with options of `clew record`; its recording.
pub fn record_program(options: &[&str], program: &[&str]) -> PathBuf {
    let (recording, status) = record_any(options, program);
    assert!(status.success(), "{status}");
    recording
}

/// The same of a program that may fail, and how it ended.
pub fn record_any(options: &[&str], program: &[&str]) -> (PathBuf, std::process::ExitStatus) {
    let folder = scratch();
    let name = Path::new(program[0]).file_name().unwrap();
    let recording = folder.join(name).with_extension("rec");
    let _ = std::fs::remove_dir_all(&recording);
    let recorded = Command::new(clew())
        .args(["record", "-o"])
        .arg(&recording)
        .args(options)
        .arg("--")
        .args(program)
        .env("CLEW_DIR", &folder)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    (recording, recorded)
}

/// Workers are the command under test.
pub fn settings() -> Settings {
    Settings {
        program: Some(clew()),
        ..Settings::new(Options::default())
    }
}

pub fn open(folder: &Path) -> Timeline {
    open_with(folder, |_| ())
}

pub fn open_with(folder: &Path, change: impl FnOnce(&mut Settings)) -> Timeline {
    let recording = Recording::open(folder).unwrap();
    let stream = recording.streams()[0].id;
    let mut settings = settings();
    change(&mut settings);
    Timeline::open(&recording, stream, settings).unwrap()
}

pub fn open_stream(folder: &Path, stream: u32) -> Timeline {
    let recording = Recording::open(folder).unwrap();
    Timeline::open(&recording, stream, settings()).unwrap()
}

pub fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let at = |part: f64| times.get(((times.len() as f64 - 1.0) * part) as usize);
    let zero = Duration::ZERO;
    format!(
        "{} times, median {:?}, 90% {:?}, at most {:?}",
        times.len(),
        at(0.5).unwrap_or(&zero),
        at(0.9).unwrap_or(&zero),
        times.last().unwrap_or(&zero)
    )
}

/// All processes of dropped timelines are gone, and were waited for.
pub fn no_children() {
    assert_eq!(children(), [""; 0], "processes are left");
}

pub fn children() -> Vec<String> {
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap();
    children.split_whitespace().map(str::to_owned).collect()
}

/// Seconds that this process and its workers have computed: on a busy machine the better measure.
pub fn computed() -> f64 {
    let workers = children();
    let workers = workers.iter().map(|pid| ticks(pid, 4)).sum::<u64>();
    (workers + ticks("self", 4)) as f64 / 100.0
}

/// Seconds that one process has computed, without its children.
pub fn of_process(pid: &str) -> f64 {
    ticks(pid, 2) as f64 / 100.0
}

/// Of user, system and, of children that ended, user and system.
fn ticks(pid: &str, times: usize) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let all = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let all = all.split(' ').skip(11).take(times);
    all.filter_map(|n| n.parse::<u64>().ok()).sum()
}

/// Where a guest's functions and variables are.
pub struct Program {
    symbols: BTreeMap<String, u64>,
    base: u64,
}

impl Program {
    /// As it is loaded when the program begins to run.
    pub fn of(timeline: &mut Timeline, folder: &Path, guest: &str) -> Program {
        let file = folder.parent().unwrap().join(guest);
        let listed = Command::new("nm").arg(&file).output().unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        let symbols = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((words.nth(1)?.to_owned(), address))
        });
        let end = format!("/{guest}");
        let mappings = timeline.mappings().unwrap();
        let base = mappings
            .iter()
            .find(|mapping| mapping.name.ends_with(&end))
            .map(|mapping| mapping.start - mapping.offset)
            .expect("the program's image");
        Program {
            symbols: symbols.collect(),
            base,
        }
    }

    pub fn address(&self, name: &str) -> u64 {
        self.base + self.symbols[name]
    }
}
