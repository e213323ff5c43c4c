//! `clew hunt`: runs a program under many schedules and keeps the recordings of runs that fail.
//!
//! In: the command line. Out: what was found, for people or as JSON; a line of progress on a terminal.

pub mod arguments;
pub mod explain;
mod facts;
pub(crate) mod lines;
mod merge;
pub mod minimize;

use std::ffi::{CStr, OsString};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::arguments::Engine;
use crate::progress::Line;
use crate::text::{self, Style};
use crate::{recordings, run};
use arguments::{Guard, Hunt, Sched};
use clew_hunt::idiom::explore::Coverage;
use clew_hunt::minimize::Progress;
use clew_hunt::run::{Ended, Runner};
use clew_hunt::visible::Kind;
use clew_hunt::{Condition, Found, News, Report, Settings, Shard, Stopped, Strategy, Tally, Time};
use facts::Facts;

const NOTHING_FOUND: i32 = 1;
const INTERRUPTED: i32 = 130;
const CANT_HUNT: i32 = 125;

/// When neither runs nor time are given.
const USUAL_RUNS: u64 = 1000;
/// Lines of a failing run's output that are shown.
const LAST_LINES: usize = 3;

/// Set by Ctrl-C and other wishes that it should end.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

pub fn hunt(line: &Hunt, envp: &[&CStr]) -> i32 {
    if line
        .guest
        .program
        .first()
        .is_some_and(|word| word == "merge")
    {
        return merge::merge(&line.guest.program[1..], line.json);
    }
    // What can't be run at all is said before anything is made.
    if let Err(status) = run::request(&line.guest, &Engine::default(), envp) {
        return status;
    }
    let settings = match settings(line, envp) {
        Ok(mut settings) => {
            if line.diagnose {
                crate::diagnose::delta::wanted(&mut settings);
            }
            settings
        }
        Err(message) => {
            eprintln!("clew: {}", text::plain(&message));
            return CANT_HUNT;
        }
    };
    prepare_signals();
    let mut screen = Screen {
        json: line.json,
        line: Line::default(),
        style: Style::stdout(),
        settings: &settings,
    };
    let hunted = clew_hunt::hunt(&settings, &STOP, &mut |news| screen.show(&news));
    screen.clear();
    match hunted {
        Ok(report) => {
            screen.end(&report);
            if line.diagnose
                && let Err(status) =
                    crate::diagnose::delta::after_hunt(&settings, &report, line.json, envp)
            {
                return status;
            }
            match (report.found.is_empty(), report.stopped) {
                (false, _) => 0,
                (true, Stopped::Interrupted) => INTERRUPTED,
                (true, _) => NOTHING_FOUND,
            }
        }
        Err(error) => {
            eprintln!("clew: {}", text::plain(&error.to_string()));
            CANT_HUNT
        }
    }
}

/// The guard of a hunt, see [`clew_hunt::guard`].
pub fn guard(line: &Guard) -> i32 {
    clew_hunt::guard::guard(std::io::stdin().lock(), &line.dir, &line.prefix);
    0
}

fn settings(line: &Hunt, envp: &[&CStr]) -> Result<Settings, String> {
    let conditions = match line.fail_if.is_empty() {
        true => Condition::usual(),
        false => line.fail_if.clone(),
    };
    let runs = match line.limit() {
        None => Some(line.runs.unwrap_or(USUAL_RUNS)),
        Some(_) => line.runs,
    };
    let program = line.guest.program.clone();
    let races = conditions.iter().any(|one| matches!(one, Condition::Race));
    let mut usual = settings_for(program, line.portable, line.jobs, envp)?;
    usual.runner.races = races;
    Ok(Settings {
        runs,
        time: line.limit(),
        clock: line.clock(),
        strategy: match line.sched {
            Sched::Random => Strategy::Random,
            Sched::Pct => Strategy::Pct(line.depth),
            Sched::Chaos => Strategy::Chaos,
            Sched::Mixed => Strategy::Mixed,
            Sched::Idiom => Strategy::Idiom,
            Sched::Surw => Strategy::Visible(Kind::Surw),
            Sched::Pos => Strategy::Visible(Kind::Pos),
            Sched::Points => Strategy::Visible(Kind::Points),
            Sched::Delay => Strategy::Visible(Kind::Delay),
            Sched::Hold => Strategy::Visible(Kind::Hold),
            Sched::Meet => Strategy::Visible(Kind::Meet),
        },
        chaos: line.chaos.map(|kinds| kinds.names()),
        seed: line.seed,
        shard: line.shard,
        conditions,
        timeout: line.timeout,
        keep: line.keep as usize,
        minimize: line.minimize,
        ..usual
    })
}

/// For runs of one program that aren't chosen by a strategy.
pub(crate) fn settings_for(
    program: Vec<OsString>,
    portable: bool,
    jobs: Option<u64>,
    envp: &[&CStr],
) -> Result<Settings, String> {
    let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let portable = portable.then(|| OsString::from("--portable"));
    Ok(Settings {
        runner: Runner {
            exe,
            options: portable.into_iter().collect(),
            program,
            races: false,
        },
        place: recordings::place(envp).map_err(|error| error.to_string())?,
        runs: None,
        time: None,
        jobs: jobs.map_or(processors, |jobs| jobs as usize),
        strategy: Strategy::default(),
        clock: Time::default(),
        chaos: None,
        seed: 1,
        shard: Shard::default(),
        conditions: Condition::usual(),
        timeout: None,
        keep: 1,
        minimize: None,
        passing: 0,
    })
}

/// Ctrl-C, a hang-up or a wish to terminate ends the hunt in order. Runs leave no cores behind.
pub(crate) fn prepare_signals() {
    extern "C" fn stop(_signo: i32) {
        STOP.store(true, Ordering::Relaxed);
    }
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the handler does nothing but set a flag; the structures are whole.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop as *const () as usize;
        for signo in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaction(signo, &raw const action, std::ptr::null_mut());
        }
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        let mut limit = none;
        if libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) == 0 {
            limit.rlim_cur = 0;
            libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        }
    }
}

/// What the user sees.
struct Screen<'a> {
    json: bool,
    line: Line,
    style: Style,
    settings: &'a Settings,
}

impl Screen<'_> {
    fn show(&mut self, news: &News) {
        match news {
            News::Progress(tally) if !self.json => self.progress(tally),
            News::Found(found) if !self.json => {
                self.clear();
                text::print(&self.found(found));
            }
            News::Minimizing(progress) if !self.json => self.minimizing(progress),
            News::Minimized(found) if !self.json => {
                self.clear();
                if let Some(minimized) = &found.minimized {
                    let again = |smaller: &clew_hunt::minimize::Smaller| {
                        let plan = found.plan.following(&smaller.schedule);
                        self.command(&plan.options(), &smaller.ended)
                    };
                    let text = lines::minimized(&found.name, minimized, self.style, &again);
                    text::print(&text);
                }
            }
            _ => {}
        }
    }

    fn minimizing(&mut self, progress: &Progress) {
        self.line.say(&format!(
            "minimizing: {} of at most {}, {} of {} left",
            text::count(progress.runs),
            text::counted(progress.most, "run"),
            text::count(progress.preemptions),
            text::counted(progress.before, "preemption"),
        ));
    }

    fn progress(&mut self, tally: &Tally) {
        let of = self
            .settings
            .runs
            .map_or(String::new(), |runs| format!(" of {}", text::count(runs)));
        let mut line = format!(
            "{}{of} runs, {}, {} tried, {} failed",
            text::count(tally.runs),
            rate(tally),
            text::counted(tally.runs.saturating_sub(1), "schedule"),
            text::count(tally.failed),
        );
        if let Some(coverage) = &tally.coverage {
            line.push_str(&format!(", {}", orders(coverage)));
        }
        if let Some((name, preemptions)) = &tally.best {
            let fewest = text::counted(*preemptions, "preemption");
            line.push_str(&format!(", best so far {name} with {fewest}"));
        }
        self.line.say(&line);
    }

    fn clear(&mut self) {
        self.line.clear();
    }

    /// What was found, and what to do with it.
    fn found(&self, found: &Found) -> String {
        let style = self.style;
        let name = text::plain(&found.name);
        let why = style.bad(&text::plain(&found.why));
        let mut out = format!(
            "found: {}, {why}, after {} (by {}, {})\n",
            style.bold(&name),
            text::counted(found.after, "run"),
            found.plan.kind,
            text::counted(found.schedule.preemptions, "preemption"),
        );
        if let Ended::Deadlock(who) = &found.ended {
            out.push_str(&lines::deadlock(who, found.explained.as_ref()));
        }
        if !matches!(found.ended, Ended::Deadlock(_)) {
            out.push_str(&lines::crash(found.explained.as_ref()));
        }
        for line in last_lines(&found.stderr) {
            out.push_str(&format!("  | {line}\n"));
        }
        let row = |what: &str, command: String| format!("  {what:9}{command}\n");
        out.push_str(&row("replay", format!("clew replay {name}")));
        out.push_str(&row("debug", format!("clew debug {name}")));
        let again = self.command(&found.plan.options(), &found.ended);
        out.push_str(&row("again", again));
        out
    }

    /// The command that makes a run once more. A deadlock would last for ever.
    fn command(&self, options: &[String], ended: &Ended) -> String {
        let mut options = options.to_vec();
        if matches!(ended, Ended::Deadlock(_)) {
            options.push("--on-deadlock=stop".into());
        }
        let options = text::command(&options);
        let words = self.settings.runner.program.iter();
        let words: Vec<String> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        format!("clew record {options} -- {}", text::command(&words))
    }

    fn end(&self, report: &Report) {
        if self.json {
            let json = serde_json::to_string(&Facts::of(report)).unwrap_or_default();
            return text::print(&format!("{json}\n"));
        }
        let tally = &report.tally;
        let runs = format!(
            "{} in {} ({})",
            text::counted(tally.runs, "run"),
            text::duration(tally.elapsed.as_nanos() as u64),
            rate(tally),
        );
        let interrupted = match report.stopped {
            Stopped::Interrupted => "interrupted: ",
            _ => "",
        };
        text::print(&match report.found.len() {
            0 => format!("{interrupted}no failure in {runs}\n"),
            kept => format!(
                "{interrupted}{runs}, {} failed, {} kept\n",
                text::count(tally.failed),
                text::count(kept as u64)
            ),
        });
        if let Some(coverage) = &tally.coverage {
            text::print(&format!("{}\n", orders(coverage)));
        }
        let pointless = tally.threads < 2 && self.settings.chaos.is_none();
        if report.found.is_empty() && pointless && tally.runs > 1 {
            eprintln!(
                "clew: the program never had a second thread, so schedules made little difference; --chaos may"
            );
        }
    }
}

/// Orders of accesses, for hunts that look at them.
fn orders(coverage: &Coverage) -> String {
    format!(
        "orders of accesses: {} seen, {} tried, {} untested",
        text::count(coverage.seen as u64),
        text::count(coverage.tried as u64),
        text::count(coverage.untested as u64),
    )
}

fn rate(tally: &Tally) -> String {
    let seconds = tally.elapsed.as_secs_f64().max(0.001);
    let rate = tally.runs as f64 / seconds;
    if rate < 10.0 {
        format!("{rate:.1}/s")
    } else {
        format!("{rate:.0}/s")
    }
}

/// The last lines that a run printed.
fn last_lines(bytes: &[u8]) -> Vec<String> {
    let printed = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = printed.lines().collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    let show = |line: &&str| text::shortened(&text::plain(line), 200);
    lines[from..].iter().map(show).collect()
}
