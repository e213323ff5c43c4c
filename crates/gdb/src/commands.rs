//! Our own commands, as gdb's `monitor` passes them on. In: a line. Out: text, and for those that move the
//! program a *pending move*: the next time that gdb lets the program go, it goes there instead.
//!
//! gdb believes what a stop reply says, and only then: frames, threads and an editor's display follow
//! a move that is made as the answer to `stepi`. The script for gdb (`clew.py`) does that by itself.

use std::fmt::Write;

use clew_calls::names;
use clew_debugger::Step;
use clew_recording::event::Record;
use clew_recording::marks;
use clew_timeline::{Direction, Next, Position, Reason, Stop, Target};

use crate::questions::Whose;
use crate::report::{self, Report};
use crate::resume::Resume;
use crate::session::{Answer, Session};
use crate::{Error, Result, hex, plain};

/// What a command that moves answers. The script knows it.
pub const GO: &str = "clew: type stepi to go there\n";

/// Where to go when gdb resumes the program.
pub enum Move {
    To(Target),
    /// Back to the last change of this memory.
    LastChange {
        addr: u64,
        len: u64,
    },
    /// To where an expression's truth changes.
    Transition(String),
    /// From line to line.
    Lines(Step, Direction, Whose),
    /// Out of a what-if.
    Back,
    /// It went already; gdb had to look at the libraries first.
    Gone(Stop),
}

const HELP: &str = "\
when                 where this is: EVENT+TICKS+STEPS
seek POSITION        go there; also start, end, tick:N or a bookmark's name
events [N]           N events around here (default 10)
bookmark NAME        call this position NAME
bookmarks            list them
forget NAME          drop one
threads              all threads, what they are called and what they wait for
last ADDR LEN        go back to the last change of this memory
calls FUNCTION       all calls of a function, with arguments and results
writes EXPR          all changes of a variable
output               all that was written to standard output and error
origin EXPR          where a value comes from; also $register
slice [EXPR]         all that a value depends on, or the failure; then slice up, down [N], next, prev, list or a number
minima, maxima [T]   the same run in another order: thread T first, or the others first as far as they come without it
order                back to the order that was recorded; order table: what each thread does next
lc-break N           go to where this thread's Lamport clock reaches N; also T:N
proceed T            let thread T do its next event now, if nothing must come first
event next           to the next event of this thread; also event prev
probe add PLACE CODE debug code in the replay, at a place; also probe list, probe delete N
probe run            run all of it over the whole recording: what it prints, with positions
next, step, finish   from line to line in one search, however long it takes; also reverse-next and so on
transition EXPR      go to where EXPR changes from true to false, or the other way
excursion            from here on, continue and step run a copy that follows no recording
back                 drop the copy: here is what was recorded
";

impl Session<'_> {
    /// `qRcmd`, what is behind the comma.
    pub(crate) fn monitor(&mut self, command: &[u8]) -> Result<Answer> {
        let line = hex::bytes(command).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).trim().to_string();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let done = match self.command(word, rest.trim()) {
            Err(Error::Timeline(error)) => Err(error.to_string()),
            Err(Error::Command(text)) => Err(text),
            Err(error) => return Err(error),
            Ok(text) => Ok(text),
        };
        let text = done.unwrap_or_else(|error| format!("clew: {error}\n"));
        if text.is_empty() {
            return Ok("OK".into());
        }
        self.say(&text)?;
        Ok("OK".into())
    }

    fn command(&mut self, word: &str, rest: &str) -> Result<String> {
        let wrong = |text: &str| Err(Error::Command(text.into()));
        match word {
            "" | "help" => return Ok(HELP.into()),
            "hello" => match self.first.take() {
                // It has connected; now it goes to where the user wants to begin.
                Some(at) if at != Target::Start => self.pending = Some(Move::To(at)),
                _ => return self.greeting(),
            },
            "when" => return self.when(),
            "events" => return self.nearby_events(rest),
            "threads" => {
                let mut text = self.list_threads()?;
                // What they do next, if it was asked for before: it takes a replay.
                text.push_str(&self.order_of("known")?);
                return Ok(text);
            }
            "bookmarks" => return Ok(self.list_bookmarks()),
            "bookmark" => return self.bookmark(rest),
            "forget" => {
                return match self.bookmarks.remove(rest) {
                    Some(_) => Ok(String::new()),
                    None => wrong(&format!(
                        "there is no bookmark {rest:?}; bookmarks lists them"
                    )),
                };
            }
            "excursion" => {
                self.free_whatif()?;
                return Ok(
                    "From here on a copy runs, which follows no recording; clew back drops it.\n"
                        .into(),
                );
            }
            "seek" => self.pending = Some(Move::To(self.target(rest)?)),
            "last" => {
                let mut numbers = rest.split_whitespace().map(number);
                let (Some(Some(addr)), Some(Some(len)), None) =
                    (numbers.next(), numbers.next(), numbers.next())
                else {
                    return wrong("last takes an address and a length");
                };
                self.pending = Some(Move::LastChange { addr, len });
            }
            "calls" => return self.all_calls(rest),
            "writes" => return self.all_writes(rest),
            "output" => return self.all_output(rest),
            "origin" => return self.origin_of(rest),
            "slice" => return self.slice_of(rest),
            "minima" | "maxima" | "order" | "lc-break" | "proceed" | "event" => {
                return self.order_of(&format!("{word} {rest}"));
            }
            "probe" => return self.probe(rest),
            "next" => self.pending = Some(lines(Step::Over, Direction::Forward, rest)?),
            "reverse-next" => self.pending = Some(lines(Step::Over, Direction::Backward, rest)?),
            "step" => self.pending = Some(lines(Step::Into, Direction::Forward, rest)?),
            "reverse-step" => self.pending = Some(lines(Step::Into, Direction::Backward, rest)?),
            "finish" => self.pending = Some(lines(Step::Out, Direction::Forward, rest)?),
            "reverse-finish" => self.pending = Some(lines(Step::Out, Direction::Backward, rest)?),
            "transition" if rest.is_empty() => return wrong("transition takes an expression"),
            "transition" => self.pending = Some(Move::Transition(rest.into())),
            "back" => self.pending = Some(Move::Back),
            _ => return wrong(&format!("there is no command {word:?}; help lists them")),
        }
        Ok(GO.into())
    }

    /// What the user sees first.
    fn greeting(&mut self) -> Result<String> {
        let at = self.timeline.at();
        let words = self.start.argv.iter();
        let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word)).collect();
        let (name, pid) = (&self.name, self.pid());
        let command = plain(&words.join(" "));
        let mut text = format!("clew: {name}, process {pid}: {command}\n");
        let place = match at.next {
            Some(
                next @ (Next::Killed { .. }
                | Next::Exit { .. }
                | Next::Exec
                | Next::CutOff
                | Next::Diverges),
            ) => {
                format!("{}; reverse-continue goes back", self.ending(next))
            }
            _ => format!("at event {}; continue goes on", at.event),
        };
        let _ = writeln!(text, "clew: {place}. help clew shows its own commands");
        Ok(text)
    }

    fn when(&mut self) -> Result<String> {
        let position = self.timeline.position()?;
        let at = self.timeline.at();
        let tid = self.tid_of(at.thread)?;
        let mut text = format!("{position}  thread {tid}");
        if let Some(next) = at.next {
            let _ = write!(text, "  next: {}", described(next));
        }
        text.push('\n');
        if self.whatif.is_some() {
            text.push_str("a what-if: what was changed isn't in the recording\n");
        }
        Ok(text)
    }

    fn target(&mut self, text: &str) -> Result<Target> {
        if let Some(position) = self.bookmarks.get(text) {
            return Ok(Target::Position(*position));
        }
        if let Some(name) = text.strip_prefix("mark:") {
            let found = marks::find(&self.recording, self.stream, name)?;
            return found.map(Target::Position).map_err(Error::Command);
        }
        let target = parse_target(text);
        if let Ok(Target::Position(position)) = target
            && position.event >= self.count_events()?
        {
            let event = position.event;
            let text =
                format!("{event} is behind the end; clew seek end goes to the last position");
            return Err(Error::Command(text));
        }
        target.map_err(|mut why| {
            if !self.bookmarks.is_empty() {
                let names: Vec<&str> = self.bookmarks.keys().map(String::as_str).collect();
                let _ = write!(why, "; bookmarks are {}", names.join(", "));
            }
            Error::Command(why)
        })
    }

    /// How many events the stream has.
    fn count_events(&mut self) -> Result<u64> {
        if let Some(count) = self.events_in_all {
            return Ok(count);
        }
        let mut reader = self.recording.stream(self.stream)?;
        let mut count = 0;
        while let Some(record) = reader.next()? {
            count += u64::from(matches!(record, Record::Event(_)));
        }
        self.events_in_all = Some(count);
        Ok(count)
    }

    fn nearby_events(&mut self, rest: &str) -> Result<String> {
        let many = match rest {
            "" => 10,
            _ => rest
                .parse::<u64>()
                .map_err(|_| Error::Command("events takes a number".into()))?,
        };
        let here = self.timeline.at().event;
        let from = here.saturating_sub(many / 2).saturating_add(1);
        let to = from.saturating_add(many.max(1) - 1);
        let events = self.helper.events(from, to).map_err(Error::Command)?;
        let mut text = String::new();
        for (number, line) in events {
            // Those below the mark haven't happened yet.
            let mark = if number == here + 1 { '>' } else { ' ' };
            let _ = writeln!(text, "{mark} {line}");
        }
        Ok(text)
    }

    fn list_threads(&mut self) -> Result<String> {
        let running = self.timeline.at().thread;
        let mut text = String::new();
        for thread in self.all_threads()? {
            let mark = if thread.number == running { '*' } else { ' ' };
            let waits = thread.waits.map_or(String::new(), |nr| {
                format!("  waits in {}", names::call(nr))
            });
            let _ = writeln!(
                text,
                "{mark} {:<3} {:>7}  {:<16}  {:#018x}{waits}",
                thread.number,
                thread.tid,
                plain(&thread.name),
                thread.pc
            );
        }
        Ok(text)
    }

    fn bookmark(&mut self, name: &str) -> Result<String> {
        if name.is_empty() || name.contains(char::is_whitespace) || parse_target(name).is_ok() {
            let text = "a bookmark's name is one word that can't be taken for a position";
            return Err(Error::Command(text.into()));
        }
        let position = self.timeline.position()?;
        self.bookmarks.insert(name.into(), position);
        Ok(format!("{name}: {position}\n"))
    }

    fn list_bookmarks(&self) -> String {
        let mut all: Vec<(&String, &Position)> = self.bookmarks.iter().collect();
        all.sort_by_key(|(_, position)| **position);
        let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        all.iter()
            .fold(String::new(), |mut text, (name, position)| {
                let _ = writeln!(text, "{name:<width$}  {position}");
                text
            })
    }

    /// Makes a pending move, as the answer to `how`.
    pub(crate) fn make(&mut self, next: Move, how: Resume) -> Result<Report> {
        let back = matches!(next, Move::Back);
        if back && self.whatif.is_none() {
            self.say("[clew: there is no what-if here]\n")?;
        }
        self.drop_whatif()?;
        let stop = match next {
            Move::Gone(stop) => return self.there(&stop, how),
            Move::To(target) => self.seek(target)?,
            Move::LastChange { addr, len } => self.last_change(addr, len)?,
            Move::Lines(step, direction, whose) => {
                let stop = self.step_lines(step, direction, whose)?;
                if matches!(stop.reason, Reason::Break | Reason::Interrupted) {
                    self.forget();
                    return self.told(&stop, true, how);
                }
                stop
            }
            Move::Back => self.here(),
            Move::Transition(expression) => {
                let before = self.timeline.position()?;
                let thread = self.timeline.at().thread;
                let found = self
                    .helper
                    .transition(&mut self.timeline, &expression, thread);
                match found {
                    Ok((position, text)) => {
                        self.say(&text)?;
                        self.timeline.seek(Target::Position(position))?
                    }
                    Err(text) => {
                        self.say(&format!("[clew: {text}]\n"))?;
                        self.timeline.seek(Target::Position(before))?
                    }
                }
            }
        };
        self.forget();
        // gdb doesn't notice that it has passed the loading of a library.
        let told = self.libraries.take();
        let now = self.current_libraries()?;
        let changed = told.as_ref().is_some_and(|told| *told != now);
        self.libraries = Some(now);
        if changed {
            let stepped = match how {
                Resume::Step(thread) | Resume::Range { thread, .. } => thread,
                Resume::Continue => stop.thread,
            };
            let tid = self.tid_of(stepped)?;
            self.pending = Some(Move::Gone(stop));
            return Ok(Report::with("library:;", tid));
        }
        self.there(&stop, how)
    }

    /// Goes there; if there is no such place before the end, back to here.
    fn seek(&mut self, target: Target) -> Result<Stop> {
        let before = self.timeline.position()?;
        let stop = self.timeline.seek(target)?;
        if stop.reason == Reason::Interrupted {
            self.say(
                "[clew: interrupted: it stands where it stood; clew seek goes on from there]\n",
            )?;
            return Ok(stop);
        }
        if let Target::Position(position) = target {
            let last = self.timeline.position()?;
            if last < position {
                self.say(&format!(
                    "[clew: {position} isn't reached: the last position is {last}]\n"
                ))?;
                return Ok(self.timeline.seek(Target::Position(before))?);
            }
        }
        Ok(stop)
    }

    fn here(&self) -> Stop {
        let at = self.timeline.at();
        Stop {
            reason: Reason::Arrived,
            thread: at.thread,
            pc: at.pc,
        }
    }

    /// gdb takes a plain stop for the end of its step in the thread that steps only; in another
    /// one it would call it a signal, so it gets one that means nothing.
    fn there(&mut self, stop: &Stop, how: Resume) -> Result<Report> {
        self.arrived(stop)?;
        let mut report = self.standing.clone();
        let stepped = match how {
            Resume::Step(thread) | Resume::Range { thread, .. } => thread == stop.thread,
            Resume::Continue => false,
        };
        if report.signal == report::TRAP && !stepped {
            report.signal = report::NOTHING;
        }
        Ok(report)
    }
}

/// A step from line to line: nothing but who makes it.
fn lines(step: Step, direction: Direction, rest: &str) -> Result<Move> {
    match Whose::split(rest) {
        (whose, "") => Ok(Move::Lines(step, direction, whose)),
        _ => Err(Error::Command("a step takes no argument".into())),
    }
}

/// Where to, in words: `start`, `end`, `tick:N` or a position.
pub fn parse_target(text: &str) -> std::result::Result<Target, String> {
    match text {
        "start" => return Ok(Target::Start),
        "end" => return Ok(Target::End),
        _ => {}
    }
    let parsed = match text.strip_prefix("tick:") {
        Some(ticks) => ticks.replace(',', "").parse().ok().map(Target::Ticks),
        None => text.parse().ok().map(Target::Position),
    };
    parsed.ok_or_else(|| {
        format!(
            "{text:?} is no place; one is EVENT, EVENT+TICKS, EVENT+TICKS+STEPS (clew when tells), \
             tick:N, start or end"
        )
    })
}

/// A number as people and scripts write it.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => hex::number(digits.as_bytes()),
        None => text.parse().ok(),
    }
}

fn described(next: Next) -> String {
    match next {
        Next::Call { nr } => names::call(nr),
        Next::Signal { signo, .. } => names::signal(signo),
        Next::Switch { to } => format!("thread number {to} goes on"),
        Next::Exit { status } => format!("exit with status {status}"),
        Next::Killed { signo, .. } => format!("killed by {}", names::signal(signo)),
        Next::Exec => "exec".into(),
        Next::Fork { pid } => format!("fork of {pid}"),
        Next::Other => "an event".into(),
        Next::CutOff => "nothing: the recording ends here".into(),
        Next::Diverges => "nothing: the replay isn't what was recorded from here on".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let position = |event, ticks, steps| {
            Ok(Target::Position(Position {
                event,
                ticks,
                steps,
            }))
        };
        assert_eq!(parse_target("start"), Ok(Target::Start));
        assert_eq!(parse_target("end"), Ok(Target::End));
        assert_eq!(parse_target("tick:1,000"), Ok(Target::Ticks(1000)));
        assert_eq!(parse_target("17"), position(17, 0, 0));
        assert_eq!(parse_target("17+4+1"), position(17, 4, 1));
        assert!(parse_target("there").unwrap_err().contains("no place"));
        assert_eq!(number("0x10"), Some(16));
        assert_eq!(number("10"), Some(10));
    }
}
