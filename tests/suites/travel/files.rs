//! Programs without symbols, whose files are gone or are others by now, and several processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clew_tests::header::Ending;
use libtest_mimic::{Failed, Trial};

use super::place::{self, BACK, FORTH, Place, has, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "files",
        &[
            ("stripped", stripped),
            ("static", linked_statically),
            ("separate debug file", separate),
            ("by a link's name", by_a_link),
            ("a script's interpreter", interpreter),
            ("deleted afterwards", deleted),
            ("rebuilt afterwards", rebuilt),
            ("choose the process", choose),
            ("no such process", no_such_process),
            ("no such recording", no_such_recording),
            ("packed and elsewhere", packed),
        ],
    )
}

/// Process ids of a recording, in the order of their beginnings.
pub fn pids(place: &Place) -> Result<Vec<i64>, Failed> {
    let told = place.made.command("info", &["--json"]).run();
    let told: serde_json::Value = serde_json::from_slice(&told.stdout)?;
    let streams = told["summary"]["streams"].as_array().ok_or("no streams")?;
    let mut pids: Vec<i64> = streams
        .iter()
        .filter_map(|stream| stream["pid"].as_i64())
        .collect();
    pids.dedup();
    Ok(pids)
}

/// A guest's program, copied to where it may be changed, and recorded there.
fn copied(
    test: &str,
    file: &str,
    change: impl FnOnce(&Path) -> Result<(), Failed>,
) -> Result<Place, Failed> {
    let original = Place::guest(test, file)?;
    let mut job = original.job.clone();
    drop(original);
    let dir = PathBuf::from(format!("{}.program", job.dir.display()));
    clew_tests::scratch::empty(&dir);
    let program = dir.join("program");
    fs::copy(&job.program, &program)?;
    change(&program)?;
    job.program = program;
    Place::record(job, None, &Ending::Exit(0), &[])
}

fn tool(program: &str, args: &[&str]) -> Result<(), Failed> {
    let status = Command::new(program).args(args).status()?;
    require(status.success(), || format!("{program} {args:?}: {status}"))
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Addresses only: they can be broken at and stepped through.
fn stripped(test: &str) -> Result<(), Failed> {
    let mut entry = String::new();
    let place = copied(test, "steps.c", |program| {
        let named = Command::new("nm").arg(program).output()?;
        let named = String::from_utf8_lossy(&named.stdout).into_owned();
        let line = named.lines().find(|line| line.ends_with(" t add"));
        let address = line.and_then(|line| line.split_whitespace().next());
        entry = address.ok_or("no add")?.to_owned();
        tool("strip", &[&text_of(program)])
    })?;
    let mut mi = place.mi()?;
    // The program's start, from its own mapping.
    let base = mi.console(
        "python print(hex(next(int(l.split()[0], 16) for l in gdb.execute('info proc mappings', \
                           to_string=True).splitlines() if l.rstrip().endswith('/program'))))",
    )?;
    let base = base.trim().to_owned();
    mi.command(&format!("-break-insert *({base}+0x{entry})"))?;
    let seen = place::there_and_back(&mut mi, |mi, stop| Ok((stop.pc(), mi.number("$esi")?)))?;
    let values: Vec<i64> = seen.iter().map(|(_, value)| *value).collect();
    same("arguments", values, vec![0, 1, 4, 9, 16])?;
    mi.go(FORTH)?;
    let first = mi.print("$pc")?;
    mi.go("-exec-step-instruction")?;
    mi.go("-exec-step-instruction --reverse")?;
    same("stepped", mi.print("$pc")?, first)
}

fn linked_statically(test: &str) -> Result<(), Failed> {
    let place = Place::guest_with(test, "steps.c", Some("static"), &[])?;
    let mut mi = place.mi()?;
    mi.command("-break-insert compare")?;
    let seen = place::there_and_back(&mut mi, |mi, stop| {
        Ok((stop.function(), mi.print("*(int *)$rdi")?))
    })?;
    require(seen.len() > 4, || format!("{seen:?}"))
}

/// A program has the name that it was started by, and its symbols.
fn by_a_link(test: &str) -> Result<(), Failed> {
    let original = Place::guest(test, "steps.c")?;
    let mut job = original.job.clone();
    drop(original);
    let dir = PathBuf::from(format!("{}.program", job.dir.display()));
    clew_tests::scratch::empty(&dir);
    let link = dir.join("alias");
    std::os::unix::fs::symlink(&job.program, &link)?;
    job.program = link.clone();
    let place = Place::record(job, None, &Ending::Exit(0), &[])?;
    let told = place.batch("info inferiors\nbreak add\ncontinue\nprint calls")?;
    has(&told, &[&text_of(&link), "Breakpoint 1, add", "$1 = 0"])
}

/// Not the script: that is no program.
fn interpreter(test: &str) -> Result<(), Failed> {
    let dir = clew_tests::scratch::fresh(test);
    let script = PathBuf::from(format!("{}.sh", dir.display()));
    fs::write(&script, "#!/bin/sh\nexit 0\n")?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let job = clew_tests::run::Job::new(&script, dir);
    let place = Place::record(job, None, &Ending::Exit(0), &[])?;
    has(&place.batch("info inferiors")?, &["root/bin/sh"])
}

/// By build-id, as distributions ship debug information, in gdb; by `.gnu_debuglink` for `clew watch`.
fn separate(test: &str) -> Result<(), Failed> {
    let mut folder = String::new();
    let place = copied(test, "steps.c", |program| {
        let debug = text_of(&program.with_extension("debug"));
        tool("objcopy", &["--only-keep-debug", &text_of(program), &debug])?;
        tool("strip", &[&text_of(program)])?;
        tool(
            "objcopy",
            &[&format!("--add-gnu-debuglink={debug}"), &text_of(program)],
        )?;
        let notes = Command::new("readelf").arg("-n").arg(program).output()?;
        let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
        let id = notes
            .lines()
            .find_map(|line| line.trim().strip_prefix("Build ID: "));
        let id = id.ok_or("no build-id")?;
        let parent = program
            .with_file_name("symbols")
            .join(".build-id")
            .join(&id[..2]);
        fs::create_dir_all(&parent)?;
        fs::copy(&debug, parent.join(format!("{}.debug", &id[2..])))?;
        folder = text_of(&program.with_file_name("symbols"));
        Ok(())
    })?;
    let text = place.debug(
        &["--at", "start"],
        &[
            "-iex",
            &format!("set debug-file-directory {folder}"),
            "-batch",
            "-ex",
            "break add if b == 9",
            "-ex",
            "continue",
            "-ex",
            "backtrace",
        ],
    );
    let outcome = text.run();
    has(
        &String::from_utf8_lossy(&outcome.stdout),
        &["add (a=5, b=9)", "loop (count=5)", "main ()"],
    )?;
    let found = place.watch("calls >= 3", &[]);
    require(place::code(found.status) == Some(0), || found.printed())?;
    has(
        &String::from_utf8_lossy(&found.stdout),
        &["add", "steps.c:"],
    )
}

/// The recorded copy serves.
fn deleted(test: &str) -> Result<(), Failed> {
    let place = copied(test, "steps.c", |_| Ok(()))?;
    fs::remove_file(&place.job.program)?;
    let mut mi = place.mi()?;
    mi.command("-break-insert add")?;
    let seen = place::there_and_back(&mut mi, |mi, _| mi.number("b"))?;
    same("values", seen, vec![0, 1, 4, 9, 16])
}

/// Another program is there under the same name: the recorded one counts.
fn rebuilt(test: &str) -> Result<(), Failed> {
    let place = copied(test, "steps.c", |_| Ok(()))?;
    let other = Place::guest(&format!("{test}.other"), "named.c")?;
    fs::remove_file(&place.job.program)?;
    fs::copy(&other.job.program, &place.job.program)?;
    let mut mi = place.mi()?;
    mi.command("-break-insert factorial")?;
    let seen = place::there_and_back(&mut mi, |mi, _| mi.number("n"))?;
    same("values", seen, vec![5, 4, 3, 2, 1])?;
    has(&mi.refused("-break-insert count")?, &["not defined"])
}

fn choose(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "family.c")?;
    let pids = pids(&place)?;
    require(pids.len() >= 3, || format!("processes: {pids:?}"))?;
    // The parent, unless told otherwise.
    let text = place.batch(&format!(
        "break family.c:{}\ncontinue\nprint value\n",
        place.line("end")
    ))?;
    has(&text, &["$1 = 1"])?;
    let child = pids[1].to_string();
    let mut mi = place.mi_with(&["--pid", &child, "--at", "start"])?;
    mi.command("-break-insert child")?;
    let stop = mi.go(FORTH)?;
    same(
        "in the child",
        (stop.function(), mi.number("number")?),
        ("child".into(), 3),
    )?;
    mi.command("-break-watch value")?;
    let stop = mi.go(FORTH)?;
    same(
        "changed",
        (stop.reason(), mi.number("value")?),
        ("watchpoint-trigger".into(), 30),
    )?;
    mi.go(BACK)?;
    same("changed back", mi.number("value")?, 1)?;
    // What was executed is another program.
    let shell = pids[2].to_string();
    let text = place.batch_with(&["--pid", &shell, "--at", "end"], "info proc mappings\n")?;
    has(&text, &["dash"])
}

fn refused(place: &Place, options: &[&str], wanted: &[&str]) -> Result<(), Failed> {
    let job = place.debug(options, &["-batch"]);
    let outcome = job.run();
    let text = String::from_utf8_lossy(&outcome.stderr);
    require(place::code(outcome.status) != Some(0), || {
        "not refused".into()
    })?;
    has(&text, wanted)
}

fn no_such_process(test: &str) -> Result<(), Failed> {
    let place = Place::guest(test, "family.c")?;
    // It says how to see which there are.
    refused(&place, &["--pid", "1"], &["1", "clew info"])?;
    refused(&place, &["--at", "nowhere"], &["nowhere"])
}

fn no_such_recording(test: &str) -> Result<(), Failed> {
    let mut place = Place::guest(test, "steps.c")?;
    let folder = std::mem::replace(&mut place.made.folder, "/nonexistent/recording".into());
    let outcome = place.debug(&[], &["-batch"]).run();
    let missing = place.watch("1 == 2", &[]);
    place.made.folder = folder;
    for outcome in [outcome, missing] {
        let text = String::from_utf8_lossy(&outcome.stderr).into_owned();
        require(place::code(outcome.status) != Some(0), || {
            "not refused".into()
        })?;
        has(&text, &["/nonexistent/recording"])?;
    }
    Ok(())
}

/// A recording that was sent to somebody else: everything is in it.
fn packed(test: &str) -> Result<(), Failed> {
    let mut place = copied(test, "steps.c", |_| Ok(()))?;
    let pack = format!("{}.clew", place.job.dir.display());
    let _ = fs::remove_file(&pack);
    let done = place.made.command("pack", &["-o", &pack]).run();
    require(place::code(done.status) == Some(0), || done.printed())?;
    fs::remove_file(&place.job.program)?;
    let elsewhere = PathBuf::from(format!("{}.elsewhere", place.job.dir.display()));
    clew_tests::scratch::empty(&elsewhere);
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700))?;
    let mut unpack = place.made.command("unpack", &["-n", "theirs"]);
    unpack.args[1].clone_from(&pack);
    unpack.env.push(("CLEW_DIR".into(), text_of(&elsewhere)));
    let done = unpack.run();
    require(place::code(done.status) == Some(0), || done.printed())?;
    fs::remove_dir_all(&place.made.folder)?;
    place.made.folder = elsewhere.join("theirs");
    let text = place.batch("break add\ncontinue\ncontinue\nprint b\n")?;
    let _ = fs::remove_file(&pack);
    has(&text, &["$1 = 1"])
}
