//! `clew replay`: repeats a recording and ends as the recorded program did.

use std::ffi::CStr;
use std::io::IsTerminal;

use crate::arguments::Engine;
use crate::arguments::Replay;
use crate::divergence::Facts;
use crate::progress::Progress;
use crate::recordings::{self, Opened};
use crate::run;
use crate::{machine, outcome, text, variables, weave};
use clew_engine::replay::tree::{self, Outcome, Request};
use clew_recording::meta::Meta;
use clew_recording::process;
use clew_recording::reader::Recording;
use clew_recording::summary;
use clew_timeline::{Diverged, Settings};

/// The recording ends before the program did.
pub const CUT_OFF: i32 = 123;
/// The replay didn't do what is recorded.
pub const DIVERGED: i32 = 124;
/// It can't be replayed by this clew, or here.
pub const CANT_REPLAY: i32 = 125;

/// How the replayed process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    Killed(i32),
    /// After so many events.
    CutOff(u64),
    /// Where it was asked to.
    Stopped(u64),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    ending: Ending,
    /// Checksums that agreed.
    checks: u64,
    /// Processes that were replayed.
    processes: u64,
    /// Events of the program that it ended with.
    events: u64,
}

/// Why there is no such end.
#[derive(Debug)]
pub enum Failure {
    /// One for each process that diverged.
    Diverged(Vec<Diverged>),
    /// It couldn't be begun.
    Unable(String),
}

/// Replays, and shows how far it has come, where that is in nobody's way.
pub fn shown(recording: &Recording, request: &Request, what: &str) -> Result<Outcome, String> {
    let is_free = request.quiet || !std::io::stdout().is_terminal();
    let mut progress = Progress::new(what).only_if(is_free);
    let mut whole = None;
    tree::replay_and_tell(recording, request, &mut |done| {
        let whole = *whole.get_or_insert_with(|| expected(recording, request));
        progress.show(done as f64 / whole.max(1) as f64);
    })
}

/// How much work that is, by what is known of the recording.
fn expected(recording: &Recording, request: &Request) -> u64 {
    let Ok(summary) = summary::of(recording.folder()) else {
        return 0;
    };
    let process = request.process.or(request.to.map(|_| 1));
    let streams = summary.streams.iter();
    streams
        .filter(|stream| process.is_none_or(|process| process == stream.process))
        .map(|stream| {
            let events = request.to.map_or(stream.events, |to| to.min(stream.events));
            let part = events as f64 / stream.events.max(1) as f64;
            tree::work((stream.ticks as f64 * part) as u64, events)
        })
        .sum()
}

/// Replays.
fn engine(recording: &Recording, request: &Request) -> Result<Replayed, Failure> {
    let outcome = shown(recording, request, "replaying").map_err(Failure::Unable)?;
    if !outcome.divergences.is_empty() {
        return Err(Failure::Diverged(outcome.divergences));
    }
    if !outcome.unable.is_empty() {
        return Err(Failure::Unable(outcome.unable.join("; ")));
    }
    if let Some(stream) = outcome.lost.first() {
        return Err(Failure::Unable(format!(
            "the replay of stream {stream} died without a word: the recording was tampered with, memory \
             ran out, or it is a bug; in the last case please report it"
        )));
    }
    // The process's last program; or where it was asked to stop.
    let ends: Vec<_> = recording
        .of_process(request.process.unwrap_or(1))
        .filter_map(|info| outcome.ends.get(&info.id))
        .collect();
    let stopped = ends.iter().find(|end| end.ending == tree::Ending::Stopped);
    let Some(end) = stopped.or(ends.last()) else {
        return Err(Failure::Unable("nothing was replayed".into()));
    };
    let replayed = (1..=recording.processes()).filter(|&process| {
        let mut streams = recording.of_process(process);
        streams.any(|info| outcome.ends.contains_key(&info.id))
    });
    let processes = replayed.count() as u64;
    Ok(Replayed {
        ending: match end.ending {
            tree::Ending::Exited(status) => Ending::Exited(status),
            tree::Ending::Killed(signo) => Ending::Killed(signo),
            tree::Ending::Stopped | tree::Ending::Region => Ending::Stopped(end.events),
            tree::Ending::Exec | tree::Ending::CutOff => Ending::CutOff(end.events),
        },
        checks: outcome.ends.values().map(|end| end.checks).sum(),
        processes,
        events: end.events,
    })
}

pub fn replay(line: &Replay, envp: &[&CStr]) -> i32 {
    // What asks for events or checks is asked of the exact recording.
    let exact = line.verify || line.to.is_some() || line.pid.is_some();
    if let (false, Ok(folder)) = (exact, recordings::find(envp, line.recording.as_deref()))
        && Meta::read(&folder).is_ok_and(|meta| weave::is_woven(&meta))
    {
        return weave::replay(line, &folder);
    }
    let Opened {
        name,
        meta,
        recording,
    } = match recordings::open(envp, line.recording.as_deref()) {
        Ok(opened) => opened,
        Err(why) => return why.failed(),
    };
    if meta.machine.vendor != machine::here(false).vendor && !line.quiet {
        let vendor = text::plain(&meta.machine.vendor);
        eprintln!(
            "clew: recorded on a CPU by {vendor}; instructions that approximate (rsqrtps, rcpps) may \
             answer differently here"
        );
    }
    let process = match process::find(recording.streams(), line.pid) {
        Ok(process) => line.pid.map(|_| process),
        Err(why) => return text::failed(&format!("{why}; clew info {name} shows its processes")),
    };
    let variable = |name: &str| variables::get(envp, name);
    let options = match run::options(&Engine::default(), &variable) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("clew: {message}");
            return 2;
        }
    };
    let request = Request {
        process,
        to: line.to,
        verify: line.verify,
        unlocked: line.no_jail,
        quiet: line.quiet,
        ..Request::all(options)
    };
    let options = request.options.clone();
    let replayed = engine(&recording, &request);
    if let (Ok(replayed), true, false) = (&replayed, line.verify, line.quiet) {
        let others = match process.is_none() && line.to.is_none() {
            true => Others::of(&recording),
            false => Others::default(),
        };
        eprintln!("clew: {}", verdict(replayed, &others));
    }
    if let (Ok(replayed), Some(to)) = (&replayed, line.to)
        && !matches!(replayed.ending, Ending::Stopped(_))
    {
        let events = text::counted(replayed.events, "event");
        eprintln!("clew: {name} has no event {to}: it was replayed to its end, after {events}");
    }
    if let Err(Failure::Diverged(found)) = &replayed {
        let mut settings = Settings::new(options);
        (settings.unlocked, settings.verify) = (line.no_jail, line.verify);
        tell(&recording, &name, found, &settings);
    }
    conclude(&replayed.map(|replayed| replayed.ending), &name)
}

/// Says what diverged. The first that did is looked into: what others did then may be its doing.
fn tell(recording: &Recording, name: &str, found: &[Diverged], settings: &Settings) {
    let mut found: Vec<&Diverged> = found.iter().collect();
    found.sort_by_key(|diverged| diverged.stream);
    for (n, diverged) in found.into_iter().enumerate() {
        let text = match n {
            0 => Facts::find(recording, name, diverged, settings.clone(), |_, _, _| {}).text(),
            _ => diverged.to_string(),
        };
        for line in text.lines() {
            eprintln!("clew: {}", text::plain(line));
        }
    }
}

/// Processes that were there while recording and can't be replayed.
#[derive(Default)]
struct Others {
    /// They ran unrecorded: who, and why.
    missing: Vec<String>,
    /// They were killed before they did anything.
    unborn: u64,
}

impl Others {
    fn of(recording: &Recording) -> Others {
        let missing = recording.unrecorded().iter();
        Others {
            missing: missing.map(|one| text::plain(&one.text)).collect(),
            unborn: summary::of(recording.folder()).map_or(0, |summary| summary.unborn),
        }
    }
}

/// What `--verify` says in the end.
fn verdict(replayed: &Replayed, others: &Others) -> String {
    let checks = text::counted(replayed.checks, "check");
    let processes = text::counted(replayed.processes, "process");
    let mut words = match others.missing.len() as u64 {
        0 => format!("verified: {checks}, {processes}"),
        missing => format!(
            "{processes} of {} verified: {checks}; {}",
            text::count(replayed.processes + missing),
            others.missing.join("; ")
        ),
    };
    if others.unborn > 0 {
        let more = text::count(others.unborn);
        words.push_str(&format!("; {more} more killed before the first event"));
    }
    words
}

/// Says what there is to say; the exit status, or no return for a death.
fn conclude(ended: &Result<Ending, Failure>, name: &str) -> i32 {
    match ended {
        Ok(Ending::Exited(status)) => *status & 0xff,
        Ok(Ending::Killed(signo)) => outcome::die_by(*signo),
        Ok(Ending::Stopped(_)) => 0,
        Ok(Ending::CutOff(event)) => {
            let name = text::plain(name);
            eprintln!(
                "clew: {name} ends here, after event {event}; the program or its recorder was killed, or \
                 the disk was full"
            );
            CUT_OFF
        }
        // It has been told.
        Err(Failure::Diverged(_)) => DIVERGED,
        Err(Failure::Unable(why)) => {
            text::failed(why);
            CANT_REPLAY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_passed_over_in_silence() {
        let replayed = Replayed {
            ending: Ending::Exited(0),
            checks: 2,
            processes: 1,
            events: 9,
        };
        let said = |missing: &[&str], unborn| {
            let missing = missing.iter().map(|text| text.to_string()).collect();
            verdict(&replayed, &Others { missing, unborn })
        };
        assert_eq!(said(&[], 0), "verified: 2 checks, 1 process");
        assert_eq!(
            said(&[], 1),
            "verified: 2 checks, 1 process; 1 more killed before the first event"
        );
        assert_eq!(
            said(&["process 9 isn't recorded: no memory"], 0),
            "1 process of 2 verified: 2 checks; process 9 isn't recorded: no memory"
        );
    }

    #[test]
    fn statuses_tell_how_it_ended() {
        let status = |ended| conclude(&ended, "x");
        assert_eq!(status(Ok(Ending::Exited(3))), 3);
        assert_eq!(status(Ok(Ending::Stopped(9))), 0);
        assert_eq!(status(Ok(Ending::CutOff(9))), CUT_OFF);
        assert_eq!(status(Err(Failure::Diverged(Vec::new()))), DIVERGED);
        assert_eq!(status(Err(Failure::Unable("x".into()))), CANT_REPLAY);
    }
}
