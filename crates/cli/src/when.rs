//! A moment of a recorded run, as people name it: a position, a function's entry or return, a line, an amount, a signal, an
//! output. In: the word. Out: the position.

use std::str::FromStr;
use std::time::Duration;

use clew_calls::names;
use clew_debugger::{Debugger, Direction, Left, Spot, StopReason};
use clew_recording::event::{Deed, Event, Place, Record, StreamId, ThreadId};
use clew_recording::marks;
use clew_recording::reader::{ReadError, Recording};
use clew_timeline::{Position, Target, Timeline};
use regex_lite::Regex;

use crate::asking::{Failed, WRONG};

/// Outputs and calls of a function up to this many are looked through.
const MOST: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub enum When {
    At(Target),
    /// The Nth entry of a function, or its return.
    Function {
        name: String,
        number: u64,
        returns: bool,
    },
    /// When that line is come to for the Nth time.
    Line {
        spot: Spot,
        number: u64,
    },
    /// So long since the recording began.
    Time(Duration),
    /// Behind so many system calls.
    Calls(u64),
    Signal(String),
    Output(Regex),
    /// The program has named it.
    Mark(String),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<When, String> {
        if let Some((kind, what)) = text.split_once(':') {
            match kind {
                "ticks" => return amount(what).map(|ticks| When::At(Target::Ticks(ticks))),
                "calls" => return amount(what).map(When::Calls),
                "time" => return crate::hunt::arguments::duration(what).map(When::Time),
                "signal" => return Ok(When::Signal(what.trim_start_matches("SIG").into())),
                "mark" => return Ok(When::Mark(what.into())),
                "output" => {
                    let regex = Regex::new(what).map_err(|why| format!("{text}: {why}"))?;
                    return Ok(When::Output(regex));
                }
                _ => {}
            }
        }
        let place = clew_gdb::parse_target(text);
        if place.is_ok() || text.starts_with(|c: char| c.is_ascii_digit()) {
            return place.map(When::At);
        }
        let (rest, returns) = match text.strip_suffix('$') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (name, number) = match rest.rsplit_once('#') {
            Some((name, number)) => (name, amount(number)?),
            None => (rest, 1),
        };
        if number == 0 {
            return Err(format!("{text}: the first is #1"));
        }
        match name.parse::<Spot>().map_err(|error| error.to_string())? {
            Spot::Function(name) => Ok(When::Function {
                name,
                number,
                returns,
            }),
            Spot::Line { .. } | Spot::Address(_) if returns => {
                Err(format!("{text}: only functions return"))
            }
            spot => Ok(When::Line { spot, number }),
        }
    }
}

/// A word that names a moment, for who passes it on.
pub fn word(text: &str) -> Result<String, String> {
    text.parse::<When>().map(|_| text.to_owned())
}

/// A whole number: 10000, 10,000, 5e9.
fn amount(text: &str) -> Result<u64, String> {
    let digits = text.replace(',', "");
    if let Ok(number) = digits.parse() {
        return Ok(number);
    }
    let number: Option<f64> = digits.parse().ok();
    number
        .filter(|number| (0.0..1e18).contains(number) && number.fract() == 0.0)
        .map(|number| number as u64)
        .ok_or_else(|| format!("{text:?} is no number, like 10000 or 5e9"))
}

impl When {
    /// Where that is in the life of the timeline's program.
    pub fn target(&self, recording: &Recording, timeline: &mut Timeline) -> Result<Target, Failed> {
        self.target_of(recording, timeline, None)
    }

    /// The same; of functions and lines, only the times of one thread count.
    pub fn target_of(
        &self,
        recording: &Recording,
        timeline: &mut Timeline,
        thread: Option<ThreadId>,
    ) -> Result<Target, Failed> {
        let stream = timeline.stream();
        Ok(match self {
            When::At(target) => return Ok(*target),
            When::Function {
                name,
                number,
                returns,
            } => entry(recording, timeline, name, (*number, *returns), thread)?,
            When::Line { spot, number } => line(recording, timeline, spot, *number, thread)?,
            When::Output(regex) => output(recording, timeline, regex)?,
            When::Mark(name) => {
                let found = marks::find(recording, stream, name).map_err(unreadable)?;
                Target::Position(found.map_err(|why| none(&why))?)
            }
            When::Time(time) => {
                let wanted = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                let reached = |event: &Event| matches!(event, Event::Time(time) if *time >= wanted);
                let found = first(recording, stream, 1, &reached)?;
                Target::Position(Position::after(
                    found.ok_or_else(|| none(&format!("it didn't run for {time:?}")))?,
                ))
            }
            When::Calls(count) => {
                let call = |event: &Event| {
                    let deed = event.lies().0;
                    matches!(event, Event::Call(_)) && deed == Deed::Whole || deed == Deed::Finished
                };
                let found = first(recording, stream, *count, &call)?;
                let missing = || none(&format!("it makes fewer than {count} system calls"));
                Target::Position(Position::after(found.ok_or_else(missing)?))
            }
            When::Signal(name) => {
                let called = |signo: i32| names::signal(signo).trim_start_matches("SIG") == name;
                let taken = |event: &Event| match event {
                    Event::Signal { signo, .. } | Event::Killed { signo, .. } => called(*signo),
                    _ => false,
                };
                let found = first(recording, stream, 1, &taken)?;
                let missing = || none(&format!("no signal {name} comes to it"));
                before(recording, stream, found.ok_or_else(missing)?)?
            }
        })
    }
}

fn none(why: &str) -> Failed {
    Failed(WRONG, format!("there is no such moment: {why}"))
}

fn unreadable(error: ReadError) -> Failed {
    Failed(1, error.to_string())
}

/// The number of the Nth event of a kind.
fn first(
    recording: &Recording,
    stream: StreamId,
    mut number: u64,
    is: &dyn Fn(&Event) -> bool,
) -> Result<Option<u64>, Failed> {
    let mut reader = recording.stream(stream).map_err(unreadable)?;
    while let Some(record) = reader.next().map_err(unreadable)? {
        if let Record::Event(event) = &record
            && is(event)
        {
            number = number.saturating_sub(1);
            if number == 0 {
                return Ok(Some(reader.position()));
            }
        }
    }
    Ok(None)
}

/// Where an event is due.
fn before(recording: &Recording, stream: StreamId, number: u64) -> Result<Target, Failed> {
    let mut reader = recording.stream(stream).map_err(unreadable)?;
    let mut place = Place::default();
    while reader.position() < number
        && let Some(record) = reader.next().map_err(unreadable)?
    {
        if let Record::Event(event) = record {
            place = event.place();
        }
    }
    Ok(Target::Position(Position {
        event: number - 1,
        ticks: place.ticks,
        steps: place.steps.into(),
    }))
}

/// Looks at the same program from its beginning, with a timeline of its own.
fn debugger(recording: &Recording, timeline: &mut Timeline) -> Result<Debugger, Failed> {
    let mut another = timeline.another()?;
    another.seek(Target::Start)?;
    Ok(Debugger::on(recording.clone(), another))
}

fn failed(error: clew_debugger::Error) -> Failed {
    Failed(WRONG, error.to_string())
}

fn parsed(position: &str) -> Result<Target, Failed> {
    let place = position.parse().map(Target::Position);
    place.map_err(|error| Failed(WRONG, format!("{error}")))
}

fn entry(
    recording: &Recording,
    timeline: &mut Timeline,
    name: &str,
    (number, returns): (u64, bool),
    thread: Option<ThreadId>,
) -> Result<Target, Failed> {
    let mut debugger = debugger(recording, timeline)?;
    let most = thread.map_or(number.min(MOST), |_| MOST);
    let found = debugger.calls(name, most).map_err(failed)?;
    let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
    let counts = |of: ThreadId| thread.is_none_or(|thread| thread == of);
    let mut calls = found.calls.iter().filter(|call| counts(call.thread));
    let Some(call) = calls.clone().nth(index) else {
        let times = crate::text::counted(calls.by_ref().count() as u64, "time");
        let mut why = format!("{name} is called {times}{}", by(thread));
        if !found.inlined.is_empty() {
            why += ", and was inlined elsewhere";
        }
        return Err(none(&why));
    };
    match &call.left {
        _ if !returns => parsed(&call.position),
        Left::Returned { position, .. } => parsed(position),
        _ => Err(none(&format!("call {number} of {name} doesn't return"))),
    }
}

fn line(
    recording: &Recording,
    timeline: &mut Timeline,
    spot: &Spot,
    number: u64,
    thread: Option<ThreadId>,
) -> Result<Target, Failed> {
    let mut debugger = debugger(recording, timeline)?;
    let mut done = 0;
    loop {
        let stop = debugger.run_to(Direction::Forward, spot).map_err(failed)?;
        if stop.reason != StopReason::Arrived {
            let times = crate::text::counted(done, "time");
            return Err(none(&format!("it is come to {times}{}", by(thread))));
        }
        let here = debugger.here().map_err(failed)?;
        done += u64::from(thread.is_none_or(|thread| thread == here.thread));
        if done == number {
            return parsed(&here.position);
        }
    }
}

fn by(thread: Option<ThreadId>) -> String {
    thread.map_or(String::new(), |thread| format!(" by thread {thread}"))
}

/// Outputs are looked at as one text for each of the two files.
fn output(recording: &Recording, timeline: &mut Timeline, regex: &Regex) -> Result<Target, Failed> {
    let mut debugger = debugger(recording, timeline)?;
    let mut texts = [Vec::new(), Vec::new()];
    for written in debugger.output(MOST as usize).map_err(failed)? {
        let text = &mut texts[usize::from(written.to == 2)];
        text.extend_from_slice(&written.bytes);
        if regex.is_match(&String::from_utf8_lossy(text)) {
            return parsed(&written.position);
        }
        // What a pattern may span is kept: the last line.
        if let Some(end) = text.iter().rposition(|&byte| byte == b'\n') {
            text.drain(..end);
        }
    }
    Err(none("it prints nothing like that"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let parsed = |text: &str| text.parse::<When>();
        assert!(matches!(parsed("start"), Ok(When::At(Target::Start))));
        assert!(matches!(parsed("12+3"), Ok(When::At(Target::Position(_)))));
        assert!(matches!(
            parsed("ticks:5e9"),
            Ok(When::At(Target::Ticks(5_000_000_000)))
        ));
        assert!(matches!(parsed("calls:10,000"), Ok(When::Calls(10_000))));
        assert!(matches!(parsed("time:30s"), Ok(When::Time(time)) if time.as_secs() == 30));
        assert!(matches!(parsed("signal:SIGUSR1"), Ok(When::Signal(name)) if name == "USR1"));
        assert!(matches!(parsed("mark:a b#2"), Ok(When::Mark(name)) if name == "a b#2"));
        let function = |text: &str| match parsed(text) {
            Ok(When::Function {
                name,
                number,
                returns,
            }) => (name, number, returns),
            other => panic!("{other:?}"),
        };
        assert_eq!(function("parse"), ("parse".into(), 1, false));
        assert_eq!(function("parse#3"), ("parse".into(), 3, false));
        assert_eq!(function("ns::parse$"), ("ns::parse".into(), 1, true));
        assert_eq!(function("parse#3$"), ("parse".into(), 3, true));
        assert!(matches!(
            parsed("a.c:12#7"),
            Ok(When::Line { number: 7, .. })
        ));
        for wrong in [
            "", "12x", "parse#0", "a.c:12$", "output:(", "ticks:x", "time:0s",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
