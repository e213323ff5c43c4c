//! Runs a woven recording again. In: its folder. Out: how the program ended, or where it did otherwise.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::WeaveError;
use crate::folder::{End, LOG, REPORT, Woven};
use crate::format::{CUT, CUT_STATUS, DIVERGED, HEADS, Head, REPORTED, Report, WORDS};
use crate::jail;
use crate::launch;
use crate::log::{Life, Log};

/// What came of a replay.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it was recorded.
    Ended(End),
    /// The recording ends before the program did.
    CutOff,
    /// In words.
    Diverged(String),
}

/// Replays. With `jailed`, the program can open, connect and signal nothing.
pub fn replay(woven: &Woven, jailed: bool, quiet: bool) -> Result<Outcome, WeaveError> {
    let (program, argv, envp) = launch::again(woven)?;
    let files = woven.files()?;
    let failed = |path: PathBuf| move |why| WeaveError::Io { path, why };
    let report = jail::memory(HEADS + u64::from(REPORTED) * size_of::<Head>() as u64)
        .map_err(failed(woven.path(REPORT)))?;
    let run = jail::Run {
        woven,
        files: &files,
        program: &program,
        argv: &argv,
        envp: &envp,
        report: &report,
        jailed,
        quiet,
    };
    let (status, missed) = jail::run(run).map_err(failed(program.clone()))?;
    verdict(woven, &report, status, &missed)
}

/// A file in the recording's folder that a replay outside a jail reports to.
pub fn report_file(woven: &Woven) -> Result<File, WeaveError> {
    let path = woven.path(REPORT);
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    let made = file.and_then(|file| {
        file.set_len(HEADS + u64::from(REPORTED) * size_of::<Head>() as u64)?;
        Ok(file)
    });
    made.map_err(|why| WeaveError::Io { path, why })
}

/// Compares what a replay left in its report with the recording. `missed` are files that it wanted and didn't get.
pub fn verdict(
    woven: &Woven,
    report: &File,
    status: ExitStatus,
    missed: &[String],
) -> Result<Outcome, WeaveError> {
    let path = woven.path(LOG);
    let log = Log::open(&path)?;
    let (facts, lives) = (log.facts()?, log.lives(false)?);
    let mut bytes = vec![0; size_of::<Report>()];
    let failed = |why: io::Error| WeaveError::Io {
        path: woven.path(REPORT),
        why,
    };
    report.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let told = (word(4) as usize).min(WORDS);
    let mut words = String::from_utf8_lossy(&bytes[8..8 + told]).into_owned();
    if !missed.is_empty() {
        words.push_str(&format!(
            "; files that it asked for and that aren't in the recording: {}",
            missed.join(", ")
        ));
    }
    match word(0) {
        DIVERGED => return Ok(Outcome::Diverged(words)),
        CUT if status.code() == Some(CUT_STATUS) => return Ok(Outcome::CutOff),
        0 => {
            let how = jail::describe(status);
            return Ok(Outcome::Diverged(format!(
                "the program didn't start: {how}{words}"
            )));
        }
        _ => {}
    }
    let now = End {
        status: status.code(),
        signal: status.signal(),
        duration_ns: 0,
    };
    if let Some(end) = woven.end()
        && (end.status, end.signal) != (now.status, now.signal)
        && (facts.exited || now.signal.is_some())
    {
        let how = jail::describe(status);
        return Ok(Outcome::Diverged(format!(
            "it ended by {how}, which isn't how it was recorded{words}"
        )));
    }
    for life in &lives {
        if let Some(why) = compare(life, report, now.signal.is_some()).map_err(failed)? {
            return Ok(Outcome::Diverged(why));
        }
    }
    Ok(Outcome::Ended(End {
        duration_ns: woven.end().map_or(0, |end| end.duration_ns),
        ..now
    }))
}

/// What differs in a thread's life, if anything does.
/// A signal that kills finds other threads anywhere, so they may have come less far.
fn compare(life: &Life, report: &File, killed: bool) -> io::Result<Option<String>> {
    if life.id >= REPORTED {
        return Ok(None);
    }
    let mut head = [0; size_of::<Head>()];
    report.read_exact_at(
        &mut head,
        HEADS + u64::from(life.id) * size_of::<Head>() as u64,
    )?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let (count, hash) = (word(0), word(8));
    if killed && count < life.count {
        return Ok(None);
    }
    if count != life.count {
        return Ok(Some(format!(
            "thread {} made {count} events, and {} when it was recorded",
            life.id, life.count
        )));
    }
    if hash != life.hash {
        return Ok(Some(format!(
            "the events of thread {} were others than when it was recorded",
            life.id
        )));
    }
    Ok(None)
}
