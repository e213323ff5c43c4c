//! A command goes in; it is run natively, recorded, and replayed, and everything that can be seen of
//! it must be the same each time.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;

use crate::clew;
use crate::compare::{self, difference, differing_file, report};
use crate::header::Header;
use crate::run::{Job, Outcome};

/// How often each recording is replayed.
const REPLAYS: usize = 2;

/// Runs `job` natively and recorded in turn and compares as [`compare::native_and_clew`] does; then
/// replays the recording and compares with what was recorded.
pub fn recorded(job: &Job, header: &Header, prepare: &dyn Fn()) -> Result<(), Failed> {
    let made = Recording::of(job, &[]);
    let outcome = compare::native_and(job, &made.job, header, prepare)?;
    for _ in 0..REPLAYS {
        made.replays_as(&outcome)?;
    }
    Ok(())
}

/// The same without a native run, for what isn't the same in every run: the outcome, for the caller to
/// judge, of a run that replays exactly.
pub fn outcome(job: &Job, options: &[&str]) -> Result<Outcome, Failed> {
    let made = Recording::of(job, options);
    let outcome = made.job.run();
    if outcome.status.is_none() {
        return Err(report("hung", &outcome, &[("record", &made.job)]));
    }
    for _ in 0..REPLAYS {
        made.replays_as(&outcome)?;
    }
    Ok(outcome)
}

/// A recording in a folder beside the job's, removed when dropped.
pub struct Recording {
    pub folder: PathBuf,
    /// The command that makes it.
    pub job: Job,
}

impl Recording {
    /// Of what `job` does, with `options` for `clew record`; not made yet.
    pub fn of(job: &Job, options: &[&str]) -> Recording {
        let folder = PathBuf::from(format!("{}.recording", job.dir.display()));
        remove(&folder);
        let path = folder.to_string_lossy().into_owned();
        let mut options = options.to_vec();
        options.extend(["-o", &path]);
        let job = job.through("record", &options);
        Recording { folder, job }
    }

    /// A command that does something with it: `clew VERB FOLDER OPTIONS`.
    pub fn command(&self, verb: &str, options: &[&str]) -> Job {
        let mut job = self.job.clone();
        job.program = clew::path().to_owned();
        job.args = vec![verb.into(), self.folder.to_string_lossy().into_owned()];
        job.args.extend(options.iter().map(|&word| word.into()));
        job.stdin.clear();
        job
    }

    /// Replays it: the same output and ending as when it was recorded, and no file is touched.
    pub fn replays_as(&self, recorded: &Outcome) -> Result<(), Failed> {
        let before = compare::files(&self.job.dir, &[]);
        let replay = self.command("replay", &["--verify"]);
        let mut replayed = replay.run();
        let verified = take_verdict(&mut replayed.stderr);
        let after = compare::files(&self.job.dir, &[]);
        match difference(("recorded", recorded), ("replayed", &replayed))
            .or_else(|| differing_file(("before", &before), ("after the replay", &after)))
            .or_else(|| (!verified).then(|| "nothing was verified".into()))
        {
            None => Ok(()),
            Some(what) => Err(report(
                &what,
                &replayed,
                &[("record", &self.job), ("replay", &replay)],
            )),
        }
    }
}

/// Takes away what `--verify` says at the end, after the program's own output.
fn take_verdict(stderr: &mut Vec<u8>) -> bool {
    const VERDICT: &[u8] = b"clew: verified: ";
    let at = stderr.windows(VERDICT.len()).rposition(|w| w == VERDICT);
    if let Some(at) = at {
        stderr.truncate(at);
    }
    at.is_some()
}

impl Drop for Recording {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    let gone = fs::remove_dir_all(folder);
    if let Err(error) = gone
        && folder.exists()
    {
        eprintln!("cannot remove {}: {error}", folder.display());
    }
}
