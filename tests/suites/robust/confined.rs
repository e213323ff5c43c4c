//! A replay touches nothing: which calls it makes, what it needs, and a program that breaks out of
//! the code cache.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::hostile;
use super::place::{Place, UNABLE, code, program, require};
use clew_recording::event::{Effect, Record};

pub fn trials() -> Vec<Trial> {
    let trial = |name: &'static str, test: fn(&Place) -> Result<(), Failed>| {
        let title = format!("confined/{name}");
        Trial::test(title.clone(), move || test(&Place::new(&title)))
    };
    vec![
        trial("calls", calls),
        trial("files gone", files_gone),
        trial("escape", escape),
        trial("gdb scripts", gdb_scripts),
    ]
}

/// What a process may ask of the kernel once it is locked in.
const ALLOWED: &[&str] = &[
    "mmap",
    "munmap",
    "mprotect",
    "mremap",
    "madvise",
    "brk",
    "mincore",
    "read",
    "pread64",
    "lseek",
    "fstat",
    "fstatfs",
    "close",
    "memfd_create",
    "ftruncate",
    "pwrite64",
    "copy_file_range",
    "fallocate",
    "sysinfo",
    "clock_gettime",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "wait4",
    "exit",
    "exit_group",
    "getpid",
    "getuid",
    "geteuid",
    "gettid",
    "futex",
    "getrandom",
    "write",
    "writev",
    "sendto",
    "fcntl",
    "fork",
];

fn calls(place: &Place) -> Result<(), Failed> {
    place.record("r", &[program(), "little"])?;
    let mut job = place.job(&["replay", "-q", "r"]);
    job.args = ["-f", "-o", "trace", "--"]
        .into_iter()
        .map(String::from)
        .chain([job.program.to_string_lossy().into_owned()])
        .chain(job.args.clone())
        .collect();
    job.program = "strace".into();
    if Command::new("strace").arg("--version").output().is_err() {
        eprintln!("NOT TESTED: there is no strace");
        return Ok(());
    }
    let outcome = job.run();
    require(code(&outcome) == Some(0), || outcome.printed())?;
    let trace = fs::read_to_string(place.dir.join("trace"))?;
    let mut locked = BTreeSet::new();
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in trace.lines() {
        let Some((pid, rest)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        let rest = rest.trim_start();
        let name = rest.split(['(', ' ']).next().unwrap_or("");
        if locked.contains(pid) && rest.contains('(') && !rest.starts_with(['-', '+', '<']) {
            let key = (pid.to_owned(), name.to_owned());
            *found.entry(key).or_default() += 1;
        }
        // A fork of it is as locked as it is.
        let forked = rest.starts_with("fork(") || rest.starts_with("<... fork resumed>");
        if let (true, Some((_, child))) = (forked && locked.contains(pid), rest.split_once("= ")) {
            locked.insert(child.trim().to_owned());
        }
        // The last one is the lock.
        if name == "seccomp" {
            locked.insert(pid.to_owned());
            found.retain(|(of, _), _| of != pid);
        }
    }
    require(locked.len() == 2, || format!("locked: {locked:?}"))?;
    for ((_, name), count) in &found {
        // Opening fails, and is tried where it doesn't matter.
        let opens = matches!(name.as_str(), "open" | "openat");
        require(opens || ALLOWED.contains(&name.as_str()), || {
            format!("{count} calls of {name}")
        })?;
    }
    let opened = trace.lines().filter(|line| {
        let pid = line.split_whitespace().next().unwrap_or("");
        let of_guest = line.contains("libc.so") || line.contains("robust-programs");
        of_guest && line.contains("open") && !line.contains("ENOENT") && locked.contains(pid)
    });
    let opened: Vec<&str> = opened.collect();
    require(opened.is_empty(), || format!("{opened:#?}"))
}

/// The program and what it has mapped are gone.
fn files_gone(place: &Place) -> Result<(), Failed> {
    let copy = place.dir.join("program");
    fs::copy(program(), &copy)?;
    let recorded = place.record("r", &["./program", "little"])?;
    // Overwritten first: a replay that had it open would see that.
    fs::write(&copy, b"something else")?;
    fs::remove_file(&copy)?;
    let replay = place.clew(&["replay", "--verify", "r"]);
    require(
        code(&replay) == Some(0) && replay.stdout == recorded.stdout,
        || format!("{}: {}", replay.ending(), replay.printed()),
    )
}

/// A recorded program has a script for gdb inside, and one beside it; the user's gdb trusts all. Natively they are
/// loaded, from a recording they aren't.
fn gdb_scripts(place: &Place) -> Result<(), Failed> {
    let (source, witness) = (place.dir.join("p.c"), place.dir.join("loaded"));
    fs::write(
        &source,
        "asm(\".pushsection \\\".debug_gdb_scripts\\\", \\\"MS\\\", @progbits, 1\\n\"\n\
         \".byte 4\\n.ascii \\\"inside\\\\nopen('loaded', 'a').write('inside ')\\\\n\\\"\\n.byte 0\\n\"\n\
         \".popsection\");\n\
         int main(void) { return 0; }\n",
    )?;
    let compiled = Command::new("cc")
        .args(["-g", "-o", "p", "p.c"])
        .current_dir(&place.dir)
        .status()?;
    require(compiled.success(), || "cc failed".into())?;
    fs::write(
        place.dir.join("p-gdb.py"),
        "open('loaded', 'a').write('beside ')\n",
    )?;
    fs::write(place.dir.join(".gdbinit"), "shell echo init >>loaded\n")?;
    let trusting = ["-q", "-batch", "-iex", "set auto-load safe-path /"];
    let mut native = clew_tests::run::Job::new("gdb", &place.dir).args(trusting);
    native.args.push("./p".into());
    let native = native.run();
    let loaded = fs::read_to_string(&witness).unwrap_or_default();
    let all = ["inside", "beside", "init"]
        .iter()
        .all(|word| loaded.contains(word));
    require(all, || format!("natively {loaded:?}: {}", native.printed()))?;
    fs::remove_file(&witness)?;
    place.record("r", &["./p"])?;
    let debug = [
        &["debug", "r", "--"][..],
        &trusting,
        &["-ex", "info symbol main"],
    ]
    .concat();
    let debug = place.clew(&debug);
    let said = String::from_utf8_lossy(&debug.stdout).into_owned();
    require(
        code(&debug) == Some(0) && said.contains("main in section"),
        || debug.printed(),
    )?;
    require(!witness.exists(), || {
        format!("{:?}: {}", fs::read_to_string(&witness), debug.printed())
    })
}

/// The byte that it read becomes another.
pub fn make_evil(place: &Place) -> Result<(), Failed> {
    let mut changed = 0;
    hostile::rewrite(
        &place.folder("r"),
        &place.folder("evil"),
        &mut |_, _, record, put| match record {
            Record::Effect(Effect::Memory {
                addr,
                bytes: [b'0'],
            }) => {
                changed += 1;
                put(&Record::Effect(Effect::Memory {
                    addr: *addr,
                    bytes: b"1",
                }));
            }
            record => put(record),
        },
    )?;
    require(changed == 1, || format!("{changed} bytes changed"))
}

/// The recorded program can write over the code cache, and so run machine code of its own. Outside
/// of a replay that is its right (and shows that the attempt is a real one); in a replay it gets nowhere.
fn escape(place: &Place) -> Result<(), Failed> {
    let escaped = place.dir.join("escaped");
    let mut job = place.job(&["run", program(), "escape"]);
    job.stdin = "1".into();
    job.run();
    require(escaped.exists(), || "even outside it stays in".into())?;
    fs::remove_file(&escaped)?;
    let mut job = place.job(&["record", "-n", "r", program(), "escape"]);
    job.stdin = "0".into();
    let recorded = job.run();
    require(recorded.stdout == b"stayed\n", || recorded.printed())?;
    make_evil(place)?;
    let open = place.clew(&["replay", "--no-jail", "evil"]);
    require(escaped.exists(), || {
        format!("without the lock: {}: {}", open.ending(), open.printed())
    })?;
    fs::remove_file(&escaped)?;
    let replay = place.clew(&["replay", "evil"]);
    require(code(&replay) == Some(UNABLE) && !escaped.exists(), || {
        format!("{}: {}", replay.ending(), replay.printed())
    })
}
