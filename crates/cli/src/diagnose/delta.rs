//! `clew diagnose`: what is different when it fails. In: failing and passing recordings, or a program to hunt. Out: the accesses
//! that tell them apart, and whether those are the cause.

use std::ffi::{CStr, OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::wrapped;
use crate::answers::{NOTHING, WRONG, failed, wrong};
use crate::arguments::{Engine, Guest};
use crate::hunt::{STOP, prepare_signals, settings_for};
use crate::progress::Progress;
use crate::recordings;
use crate::replay::CANT_REPLAY;
use crate::{run, text, variables};
use clew_debugger::{Debugger, Process};
use clew_diagnose::delta::confirm::{Again, confirm};
use clew_diagnose::delta::scope::Named;
use clew_diagnose::delta::{Confirmed, Diagnosis, Question, Suspect, diagnose};
use clew_hunt::{Condition, Follower, News, Passed, Plan, Settings};
use clew_recording::meta::Meta;
use clew_recording::reader::Recording;
use clew_recording::summary::{self, End};
use serde_json::json;

pub const HELP: &str = "\
Failing runs are compared with passing ones: where it fails, all accesses to the memory that threads or signal handlers \
share, and which patterns of conflicting accesses only failing runs have. The best suspect is then tried: the order is forced \
on a run that passed, and forbidden in the one that failed.

With a program, it is hunted for failing and passing runs; the failing ones are kept. Without one, --fail names recordings \
(default: the latest), and what is missing is made by running that program again, in its folder.

Exit status: 0 if a suspect is told; 1 if nothing failed or nothing tells the runs apart; 2 for a wrong command line; 125 if \
the program can't be recorded, or a recording not replayed.

Examples:
  clew diagnose ./test
  clew diagnose --fail crash-1 --pass good-1 --pass good-2
  clew diagnose --function update_from_input ./game
  clew diagnose --html why.html ./test
  clew hunt --diagnose ./test";

#[derive(Debug, Args)]
pub struct Diagnose {
    /// A recording of a failing run; may be given several times
    #[arg(long, value_name = "REC")]
    pub fail: Vec<String>,

    /// A recording of a passing run; may be given several times
    #[arg(long, value_name = "REC")]
    pub pass: Vec<String>,

    /// The function that does something wrong (default: where it fails)
    #[arg(long, value_name = "F", conflicts_with = "at")]
    pub function: Option<String>,

    /// The line that does something wrong
    #[arg(long, value_name = "FILE:LINE", value_parser = line_of)]
    pub at: Option<(String, u32)>,

    /// Don't prefer variables that the failing functions use
    #[arg(long)]
    pub all: bool,

    /// What counts as failing, as for clew hunt
    #[arg(long, value_name = "WHAT", value_parser = str::parse::<Condition>)]
    pub fail_if: Vec<Condition>,

    /// How many runs at most to look for failing and passing ones
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,

    /// Where all decisions of the hunt come from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// How often the suspect order is forced, and forbidden; 0: not at all
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub confirm: u64,

    /// How many runs at once (default: as many as there are processors)
    #[arg(short, long, value_name = "J", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: Option<u64>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write a page instead, with a lane for each thread
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub html: Option<PathBuf>,

    /// The program, looked up in PATH, and its arguments
    #[arg(
        value_name = "PROG",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}

fn line_of(text: &str) -> Result<(String, u32), String> {
    let parts = text.rsplit_once(':');
    let parts = parts.and_then(|(file, line)| Some((file.to_string(), line.parse().ok()?)));
    parts.ok_or_else(|| "a line is FILE:LINE, as in jobs.c:122".into())
}

/// So many failing runs are looked for, and so many passing ones.
const FAILING: usize = 4;
const PASSING: usize = 12;
/// How long a run may take if no first run shows it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A run, and how it is made again.
struct Known {
    folder: PathBuf,
    plan: Plan,
    /// It is there as long as this is.
    _passed: Option<Arc<Passed>>,
}

pub fn delta(line: &Diagnose, envp: &[&CStr]) -> i32 {
    match begun(line, envp) {
        Ok(status) => status,
        Err(Failed::Said(status)) => status,
        Err(Failed::Because(message)) => {
            eprintln!("clew: {}", text::plain(&message));
            CANT_REPLAY
        }
    }
}

enum Failed {
    Said(i32),
    Because(String),
}

impl From<String> for Failed {
    fn from(message: String) -> Failed {
        Failed::Because(message)
    }
}

fn begun(line: &Diagnose, envp: &[&CStr]) -> Result<i32, Failed> {
    let said = |error: clew_debugger::Error| Failed::Said(failed(&error));
    // The program may be run in another folder.
    let html = line.html.as_deref().map(std::path::absolute).transpose();
    let html = html.map_err(|error| error.to_string())?;
    let mut failing = all_of(&line.fail, envp)?;
    let mut passing = all_of(&line.pass, envp)?;
    let mut program = line.program.clone();
    let mut portable = false;
    if program.is_empty() {
        if failing.is_empty() {
            failing.push(known(None, envp)?);
        }
        let meta = Meta::read(&failing[0].folder).map_err(|why| why.to_string())?;
        for run in &failing {
            check_failed(&run.folder)?;
        }
        if passing.is_empty() || line.confirm > 0 {
            if std::env::set_current_dir(Path::new(&meta.cwd)).is_ok() {
                program = meta.argv.iter().map(OsString::from).collect();
            }
            portable = meta.portable;
        }
    }
    let mut settings = settings_for(program.clone(), portable, line.jobs, envp)?;
    settings.runs = Some(line.runs);
    settings.seed = line.seed;
    if !line.fail_if.is_empty() {
        settings.conditions.clone_from(&line.fail_if);
    }
    settings.keep = FAILING.saturating_sub(failing.len());
    settings.passing = PASSING.saturating_sub(passing.len());
    let mut timeout = Some(TIMEOUT);
    let hunts = !line.program.is_empty() || line.pass.is_empty();
    if hunts {
        let guest = Guest {
            program: program.clone(),
        };
        if program.is_empty() {
            return Err(Failed::Because(
                "there is no passing run to compare with, and the folder of the failing one is gone; give --pass REC".into(),
            ));
        }
        if let Err(status) = run::request(&guest, &Engine::default(), envp) {
            return Err(Failed::Said(status));
        }
        timeout = hunted(&settings, &mut failing, &mut passing)?.or(timeout);
    }
    if failing.is_empty() {
        let runs = text::counted(line.runs, "run");
        text::print(&format!("no failure in {runs}: nothing to diagnose\n"));
        return Ok(NOTHING);
    }
    let named = match (&line.function, &line.at) {
        (Some(function), _) => Some(Named::Function(function.clone())),
        (None, Some((file, line))) => Some(Named::Line {
            file: file.clone(),
            line: *line,
        }),
        (None, None) => None,
    };
    let mut diagnosis = compared(&failing, &passing, named, line.all, envp).map_err(said)?;
    if line.confirm > 0 && !program.is_empty() {
        let runs = (&failing[..], &passing[..]);
        tried(&mut diagnosis, &settings, timeout, runs, line.confirm, envp)?;
    }
    match &html {
        None => show(&diagnosis, line.json),
        Some(file) => {
            let name = text::plain(&file.display().to_string());
            std::fs::write(file, super::page::page(&diagnosis))
                .map_err(|error| format!("{name}: {error}"))?;
            let count = text::counted(diagnosis.suspects.len() as u64, "suspect");
            text::print(&format!("{name}: {count}\n"));
        }
    }
    Ok(match diagnosis.suspects.is_empty() {
        true => NOTHING,
        false => 0,
    })
}

/// What a hunt found, compared and tried: `clew hunt --diagnose`.
pub fn after_hunt(
    settings: &Settings,
    report: &clew_hunt::Report,
    json: bool,
    envp: &[&CStr],
) -> Result<Option<Diagnosis>, i32> {
    let (mut failing, mut passing) = (Vec::new(), Vec::new());
    taken(report, &mut failing, &mut passing);
    if failing.is_empty() {
        return Ok(None);
    }
    let compared = compared(&failing, &passing, None, false, envp);
    let mut diagnosis = compared.map_err(|error| failed(&error))?;
    let timeout = report.timeout;
    let runs = (&failing[..], &passing[..]);
    let tried = tried(&mut diagnosis, settings, timeout, runs, 5, envp);
    if let Err(Failed::Because(message)) = tried {
        eprintln!("clew: {}", text::plain(&message));
    }
    if !json {
        show(&diagnosis, false);
    }
    Ok(Some(diagnosis))
}

/// What `clew hunt --diagnose` needs besides what it looks for.
pub fn wanted(settings: &mut Settings) {
    settings.keep = settings.keep.max(FAILING);
    settings.passing = PASSING;
}

fn all_of(words: &[String], envp: &[&CStr]) -> Result<Vec<Known>, Failed> {
    words.iter().map(|word| known(Some(word), envp)).collect()
}

fn known(word: Option<&str>, envp: &[&CStr]) -> Result<Known, Failed> {
    let folder = recordings::find_exact(envp, word.map(OsStr::new))?;
    let meta = Meta::read(&folder).map_err(|why| why.to_string())?;
    let plan = Plan {
        seed: meta.schedule.seed,
        chaos: meta.schedule.chaos.clone(),
        virtual_time: meta.schedule.time.is_some(),
        ..Plan::ordinary()
    };
    Ok(Known {
        folder,
        plan,
        _passed: None,
    })
}

/// A recording that is said to fail should have.
fn check_failed(folder: &Path) -> Result<(), Failed> {
    let summary = summary::of(folder).map_err(|why| why.to_string())?;
    let fine = matches!(summary.end, End::Exited { status: 0 }) && summary.deadlock.is_none();
    match fine {
        true => {
            let name = recordings::name(folder);
            wrong(&format!(
                "{name} didn't fail: it ended with status 0; name the failing ones with --fail REC"
            ));
            Err(Failed::Said(WRONG))
        }
        false => Ok(()),
    }
}

/// Hunts for what is missing.
fn hunted(
    settings: &Settings,
    failing: &mut Vec<Known>,
    passing: &mut Vec<Known>,
) -> Result<Option<Duration>, Failed> {
    prepare_signals();
    let mut progress = Progress::new("looking for failing and passing runs");
    let most = settings.runs.unwrap_or(1).max(1) as f64;
    let report = clew_hunt::hunt(settings, &STOP, &mut |news| {
        if let News::Progress(tally) = news {
            progress.show(tally.runs as f64 / most);
        }
    });
    let report = report.map_err(|error| error.to_string())?;
    taken(&report, failing, passing);
    Ok(report.timeout)
}

/// Of failing runs, those that fail as the first one did.
fn taken(report: &clew_hunt::Report, failing: &mut Vec<Known>, passing: &mut Vec<Known>) {
    let first = report
        .found
        .first()
        .map(|found| (found.condition, found.why.clone()));
    for found in &report.found {
        if first == Some((found.condition, found.why.clone())) {
            failing.push(Known {
                folder: found.folder.clone(),
                plan: found.plan.clone(),
                _passed: None,
            });
        }
    }
    for passed in &report.passed {
        passing.push(Known {
            folder: passed.folder().to_owned(),
            plan: passed.plan.clone(),
            _passed: Some(passed.clone()),
        });
    }
}

/// Opens recordings to look at.
fn opener(envp: &[&CStr]) -> impl Fn(&Path) -> Result<Debugger, clew_debugger::Error> + use<> {
    let variable = |name: &str| variables::get(envp, name);
    let options = run::options(&Engine::default(), &variable);
    move |folder: &Path| {
        let options = options.clone().map_err(clew_debugger::Error::Process)?;
        let bad =
            |error: &dyn std::fmt::Display| clew_debugger::Error::Recording(error.to_string());
        let recording = Recording::open(folder).map_err(|error| bad(&error))?;
        let settings = clew_debugger::Settings::new(options);
        Debugger::open(recording, Process::default(), settings)
    }
}

fn compared(
    failing: &[Known],
    passing: &[Known],
    named: Option<Named>,
    all: bool,
    envp: &[&CStr],
) -> Result<Diagnosis, clew_debugger::Error> {
    let folders =
        |runs: &[Known]| -> Vec<PathBuf> { runs.iter().map(|run| run.folder.clone()).collect() };
    let (fails, passes) = (folders(failing), folders(passing));
    let open = opener(envp);
    let mut progress = Progress::new("comparing runs");
    diagnose(&mut Question {
        failing: &fails,
        passing: &passes,
        named,
        all,
        open: &open,
        progress: &mut |done, of| progress.show(done as f64 / of.max(1) as f64),
    })
}

/// Forces and forbids suspects, the best first, until the program fails by one that is forced; that one is then the first.
fn tried(
    diagnosis: &mut Diagnosis,
    settings: &Settings,
    timeout: Option<Duration>,
    (failing, passing): (&[Known], &[Known]),
    times: u64,
    envp: &[&CStr],
) -> Result<(), Failed> {
    let follower = Follower::new(settings, timeout, &STOP).map_err(|error| error.to_string())?;
    let open = opener(envp);
    let again = |run: &'_ Known| (run.folder.clone(), run.plan.clone());
    let passes: Vec<(PathBuf, Plan)> = passing.iter().map(again).collect();
    let passes: Vec<Again<'_>> = passes
        .iter()
        .map(|(folder, plan)| Again { folder, plan })
        .collect();
    let mut best = None;
    for (n, suspect) in diagnosis.suspects.iter_mut().enumerate() {
        let named = |run: &&Known| recordings::name(&run.folder) == suspect.recording;
        let Some(failed) = failing.iter().find(named) else {
            continue;
        };
        let failed = Again {
            folder: &failed.folder,
            plan: &failed.plan,
        };
        let confirmed = confirm(
            &follower,
            &suspect.key,
            &failed,
            &passes,
            &diagnosis.ranges,
            &open,
            times,
        );
        let confirmed = confirmed.map_err(|error| error.to_string())?;
        // Where nothing could be forced there is nothing to choose by.
        let ends = !confirmed.forced || confirmed.is_enough();
        if confirmed.is_enough() && confirmed.forced {
            best = Some(n);
        }
        suspect.confirmed = Some(confirmed);
        if ends {
            break;
        }
    }
    if let Some(best) = best {
        diagnosis.suspects[..=best].rotate_right(1);
    }
    Ok(())
}

fn show(diagnosis: &Diagnosis, json: bool) {
    if json {
        return text::print(&format!("{:#}\n", json!(diagnosis)));
    }
    text::print(&shown(diagnosis));
}

/// For people.
pub fn shown(diagnosis: &Diagnosis) -> String {
    let style = text::Style::stdout();
    let place = diagnosis.at.as_ref().map(|site| match &site.inside {
        Some(inside) => format!(" at {site}, in {inside}"),
        None => format!(" at {site}"),
    });
    let mut out = format!(
        "{} ({}, {} compared, {} to shared memory)\n",
        style.bad(&text::plain(&format!(
            "{}{}",
            diagnosis.failure,
            place.unwrap_or_default()
        ))),
        text::counted(diagnosis.failing as u64, "failing run"),
        text::counted(diagnosis.passing as u64, "passing one"),
        text::counted(diagnosis.accesses as u64, "access").replace("accesss", "accesses"),
    );
    if !diagnosis.complete {
        out.push_str("(not all accesses were looked at: there are too many)\n");
    }
    if diagnosis.suspects.is_empty() {
        out.push_str("nothing that was looked at tells failing runs from passing ones\n");
    }
    for (n, suspect) in diagnosis.suspects.iter().enumerate() {
        out.push_str(&suspect_text(n + 1, suspect));
    }
    out
}

fn suspect_text(n: usize, suspect: &Suspect) -> String {
    let style = text::Style::stdout();
    let mut out = format!("\n{}", style.bold(&format!("{n}. ")));
    for (n, sentence) in suspect.sentences.iter().enumerate() {
        let indent = if n == 0 { "" } else { "   " };
        out.push_str(&format!("{indent}{}\n", wrapped(&text::plain(sentence), 3)));
    }
    if let Some(confirmed) = &suspect.confirmed {
        out.push_str(&format!("   {}\n", wrapped(&confirmed_text(confirmed), 3)));
    }
    if let Some(advice) = &suspect.advice {
        out.push_str(&format!(
            "   {}\n",
            wrapped(&text::plain(&format!("What may help: {advice}.")), 3)
        ));
    }
    for told in &suspect.acts {
        if told.site.position.is_empty() {
            continue;
        }
        let words = [
            "clew",
            "debug",
            &suspect.recording,
            "--at",
            &told.site.position,
        ];
        let command = text::command(&words.map(String::from));
        let source = told.site.source.as_deref().unwrap_or("");
        out.push_str(&style.faint(&format!("   {command}  # {}\n", text::plain(source))));
    }
    out
}

/// What came of trying. Whole schedules that fail and pass again show no more than that they decide.
pub fn confirmed_text(confirmed: &Confirmed) -> String {
    let figures = |of: Option<(u64, u64)>| of.map(|(failed, of)| format!("{failed} of {of}"));
    let with = figures(confirmed.with).unwrap_or_else(|| "nobody knows how many".into());
    let without = figures(confirmed.without).map(|without| match confirmed.forbidden {
        true => format!("{without} with it forbidden in the failing one"),
        false => format!("{without} with the schedule of a passing one"),
    });
    let without = without.unwrap_or_else(|| "no passing run was there to try".into());
    match (confirmed.forced, confirmed.is_clear()) {
        (true, true) => {
            format!(
                "Confirmed: {with} runs fail with this order forced on a passing one, {without}."
            )
        }
        (true, false) => {
            format!(
                "Not confirmed: {with} runs fail with this order forced on a passing one, {without}."
            )
        }
        (false, _) => format!(
            "Not forced by itself: {with} runs fail with the whole schedule of the failing one, {without}."
        ),
    }
}
