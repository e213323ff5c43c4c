//! Expression-transition watch. In: a C expression and two positions. Out: a place in the program where it flips, with
//! thread, stack, line and the values involved; or that it doesn't, as far as anybody has looked.
//!
//! The question and the report are the same for `clew watch` and for gdb.

use clew_recording::event::ThreadId;
use clew_symbols::expr::{self, Bindings, Problem, ProblemKind};
use clew_symbols::variables::SymbolKind;
use clew_symbols::{Line, Stack};

use crate::program::{Answer, Program};
use crate::transition::{Flip, Probed, Search, Verdict};
use crate::{Break, Direction, Error, Next, Position, Reason, Stops, Target, Thread, Timeline};

mod report;

pub use report::Tint;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Question {
    pub expression: String,
    /// Where `main` begins, if not given.
    pub from: Option<Target>,
    /// The end, if not given.
    pub to: Option<Target>,
    /// So many places in between are looked at, and every change seen is searched for.
    pub samples: usize,
    /// Look for the earliest flip, at many more places, instead of any.
    pub first: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The expression is at fault: what, and where in it.
    #[error("{0}")]
    Expression(String),
    /// There is nothing between these ends, or no such place.
    #[error("{0}")]
    Ends(String),
    #[error(transparent)]
    Timeline(#[from] Error),
}

/// What was found out.
#[derive(Clone, Debug)]
pub struct Report {
    pub expression: String,
    pub from: Seen,
    pub to: Seen,
    /// Between these two, if it was looked at several places.
    pub samples: Vec<Seen>,
    pub flips: Vec<Found>,
    /// How many places were looked at in all.
    pub probes: usize,
}

/// An expression somewhere.
#[derive(Clone, Debug)]
pub struct Seen {
    pub position: Position,
    /// None if it is undefined there.
    pub truth: Option<bool>,
    /// The value, or why there is none.
    pub text: String,
}

/// A flip and all that is to be seen there.
#[derive(Clone, Debug)]
pub struct Found {
    pub flip: Flip,
    pub thread: Thread,
    /// Just before.
    pub stack: Stack,
    /// The innermost frame whose source is there.
    pub frame: usize,
    pub line: Option<Line>,
    /// What the line says, if the file is still there.
    pub source: Option<String>,
    /// What happens there, if it isn't an instruction of the program.
    pub event: Option<String>,
    /// Of the expression, and of what is in it.
    pub values: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub expression: String,
    pub before: String,
    pub after: String,
}

/// How long a called function may take at the ends: as long as one of these, in ticks.
const PATIENCE: [u64; 4] = [1 << 20, 1 << 24, 1 << 28, 1 << 32];
/// In between it may take so many times as long.
const TIMES: u64 = 8;
/// If it takes longer, it gets so many times as much, but only so often: it may never return.
const LONGER: u64 = 16;
const RETRIES: usize = 3;
/// Where it is undefined at an end, so many places are looked at for one where it isn't.
const LOOKS: usize = 24;
/// So many parts of an expression are shown.
const MOST_PARTS: usize = 16;
/// No longer line of a source is shown.
const LONGEST_LINE: usize = 200;
const LARGEST_SOURCE: u64 = 16 << 20;

/// Searches, and leaves the timeline just before the first flip; where it was, if there is none.
pub fn watch(
    timeline: &mut Timeline,
    program: &mut Program,
    question: &Question,
) -> Result<Report, WatchError> {
    let text = question.expression.trim();
    expr::check(text).map_err(|problem| WatchError::Expression(problem.pointed(text)))?;
    let stood = timeline.position()?;
    let stops = std::mem::take(&mut timeline.stops);
    timeline.set_stops_again(Stops::default());
    let report = Watch {
        timeline,
        program,
        text: text.into(),
        names: Bindings::new(),
        ticks: PATIENCE[0],
        known: Vec::new(),
    }
    .run(question);
    timeline.set_stops_again(stops);
    if !matches!(&report, Ok(report) if !report.flips.is_empty()) {
        timeline.seek(Target::Position(stood))?;
    }
    report
}

/// The expression at one end.
struct End {
    position: Position,
    probed: Probed,
    answer: Answer,
    /// What its names mean there.
    names: Bindings,
    /// The name that nothing has there.
    unknown: Option<Problem>,
}

struct Watch<'a> {
    timeline: &'a mut Timeline,
    program: &'a mut Program,
    text: String,
    names: Bindings,
    ticks: u64,
    /// What came of looking, and where.
    known: Vec<(Position, Answer)>,
}

impl Watch<'_> {
    fn run(mut self, question: &Question) -> Result<Report, WatchError> {
        let to = match question.to {
            Some(to) => self.place(to)?,
            None => self.timeline.end()?,
        };
        let from = match question.from {
            Some(from) => self.place(from)?,
            None => self.beginning(to)?,
        };
        if from >= to {
            return Err(WatchError::Ends(format!(
                "there is nothing between {from} and {to}: the first position must lie before the second"
            )));
        }
        let (a, b) = self.ends(from, to)?;
        let mut known = vec![(a.position, a.answer), (b.position, b.answer)];
        let (a, b) = (a.probed, b.probed);
        let (timeline, program) = (&mut *self.timeline, &mut *self.program);
        let (text, mut ticks, mut retries) = (self.text.as_str(), self.ticks, RETRIES);
        let mut names = self.names.clone();
        let probe = |timeline: &mut Timeline| {
            let mut answer = program.evaluate(timeline, text, &mut names, ticks)?;
            // It may need longer in the middle than at the ends.
            if answer.endless && retries > 0 {
                retries -= 1;
                let longer = ticks.saturating_mul(LONGER);
                answer = program.evaluate(timeline, text, &mut names, longer)?;
                if !answer.endless {
                    ticks = longer;
                }
            }
            let (verdict, _) = verdict_of(&answer);
            known.push((timeline.position()?, answer));
            Ok(verdict)
        };
        let mut search = Search::new(timeline, probe);
        let defined = a.verdict.truth().is_some() && b.verdict.truth().is_some();
        let differ = defined && a.verdict != b.verdict;
        let mut samples = Vec::new();
        let mut flips = Vec::new();
        if question.samples > 0 || !defined {
            let count = match question.samples {
                0 => LOOKS,
                count => count,
            };
            let all = search.samples(a.clone(), b.clone(), count)?;
            let clear: Vec<&Probed> = all.iter().filter(|p| p.verdict.truth().is_some()).collect();
            for two in clear.windows(2) {
                if two[0].verdict != two[1].verdict {
                    flips.push(search.between(two[0].clone(), two[1].clone())?);
                    // Without samples asked for, one is enough.
                    if question.samples == 0 {
                        break;
                    }
                }
            }
            samples = all[1..all.len() - 1].to_vec();
        } else if differ {
            flips.push(search.between(a.clone(), b.clone())?);
        }
        // Before the first flip it is what it is at the start, wherever that is defined.
        if question.first
            && let Some(flip) = flips.first_mut()
            && a.verdict.truth() == Some(!flip.to())
        {
            *flip = search.first(&a, flip.clone())?;
        }
        let probes = search.probes + 2;
        let seen = |probed: &Probed| {
            let answer = known.iter().find(|(at, _)| *at == probed.position);
            Seen {
                position: probed.position,
                truth: probed.verdict.truth(),
                text: answer.map_or_else(String::new, |(_, answer)| verdict_of(answer).1),
            }
        };
        let (from, to) = (seen(&a), seen(&b));
        let samples: Vec<Seen> = samples.iter().map(seen).collect();
        self.names = names;
        self.ticks = ticks;
        self.known = known;
        let mut found = Vec::new();
        // The first last, so that the timeline is left there.
        for flip in flips.into_iter().rev() {
            found.push(self.found(flip)?);
        }
        found.reverse();
        Ok(Report {
            expression: self.text,
            from,
            to,
            samples,
            flips: found,
            probes,
        })
    }

    /// Where a target is.
    fn place(&mut self, target: Target) -> Result<Position, WatchError> {
        match self.timeline.seek(target) {
            Err(Error::Refused(why)) => Err(WatchError::Ends(why)),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(self.timeline.position()?),
        }
    }

    /// Where the program's own life begins: the loader is done, and `main` is called. The start, if there is no `main`, or
    /// the stream began in the middle of a program.
    fn beginning(&mut self, to: Position) -> Result<Position, WatchError> {
        let start = self.timeline.start();
        self.timeline.seek(Target::Start)?;
        if !self.program.is_fresh(self.timeline.stream()) {
            return Ok(start);
        }
        let modules = self.program.modules(self.timeline)?;
        let main = self.program.catalog().symbol(&modules, "main");
        let main = main.filter(|(_, symbol)| symbol.kind == SymbolKind::Function);
        let Some((image, symbol)) = main else {
            return Ok(start);
        };
        self.timeline.set_stops_again(Stops {
            breaks: vec![Break {
                addr: symbol.address.wrapping_add(image.bias),
                thread: None,
                conditions: Vec::new(),
            }],
            ..Stops::default()
        });
        let stop = self.timeline.run(Direction::Forward, Some(to));
        let at = match &stop {
            Ok(stop) if stop.reason == Reason::Break => self.timeline.position(),
            _ => Ok(start),
        };
        self.timeline.set_stops_again(Stops::default());
        stop?;
        let at = at?;
        Ok(if at < to { at } else { start })
    }

    /// The expression at both ends. From here on names mean what they meant there.
    fn ends(&mut self, from: Position, to: Position) -> Result<(End, End), WatchError> {
        let mut b = self.end(to, Bindings::new())?;
        let mut a = self.end(from, Bindings::new())?;
        // A program ends within the C library, whose functions have variables, too.
        let pinned = |names: &Bindings| {
            let mut names = names.clone();
            names.pin();
            names
        };
        if b.names.is_foreign_to(&a.names) {
            b = self.end(to, pinned(&a.names))?;
        } else if a.names.is_foreign_to(&b.names) {
            a = self.end(from, pinned(&b.names))?;
        }
        if let Some(conflict) = a.names.conflict(&b.names) {
            return Err(WatchError::Expression(conflict));
        }
        // Nowhere to be seen: a wrong name, or a variable of a function that isn't running.
        if let (Some(problem), Some(_)) = (&b.unknown, &a.unknown) {
            return Err(WatchError::Expression(format!(
                "{}\nIt is neither at {from} nor at {to}. If it is a variable of a function, choose positions \
                 within a call of that function: --from POS --to POS",
                problem.pointed(&self.text)
            )));
        }
        self.names = a.names.clone();
        self.names.merge(&b.names);
        self.names.pin();
        self.ticks = self.ticks.saturating_mul(TIMES);
        Ok((a, b))
    }

    /// The expression at one end, with as much time for its calls as they need.
    fn end(&mut self, at: Position, known: Bindings) -> Result<End, WatchError> {
        self.timeline.seek(Target::Position(at))?;
        let mut names = known.clone();
        let mut answer = None;
        for ticks in PATIENCE.into_iter().filter(|ticks| *ticks >= self.ticks) {
            names = known.clone();
            let tried = self
                .program
                .evaluate(self.timeline, &self.text, &mut names, ticks)?;
            let endless = tried.endless;
            answer = Some(tried);
            if !endless {
                self.ticks = ticks;
                break;
            }
        }
        let answer = answer.ok_or(Error::Lost)?;
        let mut unknown = None;
        match &answer.value {
            Err(problem) => match problem.kind {
                ProblemKind::Wrong => {
                    return Err(WatchError::Expression(problem.pointed(&self.text)));
                }
                ProblemKind::Unknown => unknown = Some(problem.clone()),
                ProblemKind::Undefined | ProblemKind::Call => {}
            },
            Ok(value) if value.truth.is_none() => {
                return Err(WatchError::Expression(format!(
                    "{} is neither true nor false; compare it, or a part of it, with something",
                    self.text
                )));
            }
            Ok(_) => {}
        }
        let (verdict, _) = verdict_of(&answer);
        let position = self.timeline.position()?;
        Ok(End {
            position,
            probed: Probed {
                position,
                work: self.timeline.at().work,
                verdict,
            },
            answer,
            names,
            unknown,
        })
    }

    /// Looks around at a flip; leaves the timeline before it.
    fn found(&mut self, flip: Flip) -> Result<Found, WatchError> {
        let parts = expr::parts(&self.text);
        let mut all = vec![self.text.clone()];
        all.extend(parts.into_iter().take(MOST_PARTS));
        self.timeline.seek(Target::Position(flip.after()))?;
        let after = self.values(&all)?;
        self.timeline.seek(Target::Position(flip.before()))?;
        let before = self.values(&all)?;
        let values = all
            .iter()
            .zip(before.into_iter().zip(after))
            .map(|(expression, (before, after))| Change {
                expression: expression.to_string(),
                before,
                after,
            })
            .collect();
        let number = self.timeline.at().thread;
        let thread = self.thread(number)?;
        let stack = self.program.stack(self.timeline, number)?;
        // The innermost line whose source is there; a library's seldom is.
        let lines = || {
            let lines = stack.frames.iter().enumerate();
            lines.filter(|(_, frame)| frame.line.as_ref().is_some_and(|line| line.line != 0))
        };
        let readable = |frame: &clew_symbols::Frame| {
            let line = frame.line.as_ref();
            line.is_some_and(|line| std::path::Path::new(&*line.file).is_file())
        };
        let frame = lines()
            .find(|(_, frame)| readable(frame))
            .or_else(|| lines().next())
            .map(|(n, _)| n);
        let line = frame.and_then(|n| stack.frames[n].line.clone());
        let event = match &flip {
            Flip::At { before, after, .. } if after.event > before.event => {
                self.timeline.at().next.map(|next| event_text(&next))
            }
            _ => None,
        };
        Ok(Found {
            source: line.as_ref().and_then(source_text),
            flip,
            thread,
            stack,
            frame: frame.unwrap_or(0),
            line,
            event,
            values,
        })
    }

    /// The texts of values where the timeline stands. What was asked there before, and what the calls in it
    /// returned, isn't asked again: a call may take long.
    fn values(&mut self, expressions: &[String]) -> Result<Vec<String>, WatchError> {
        let position = self.timeline.position()?;
        let known = self.known.iter().find(|(at, _)| *at == position);
        let known = known.map(|(_, answer)| answer.clone());
        let mut all = Vec::new();
        for expression in expressions {
            let text = match &known {
                Some(answer) if *expression == self.text => Some(verdict_of(answer).1),
                Some(answer) => {
                    let call = answer.calls.iter().find(|(call, _)| call == expression);
                    call.map(|(_, text)| text.clone())
                }
                None => None,
            };
            all.push(match text {
                Some(text) => text,
                None => {
                    let answer = self.program.evaluate(
                        self.timeline,
                        expression,
                        &mut self.names,
                        self.ticks,
                    )?;
                    verdict_of(&answer).1
                }
            });
        }
        Ok(all)
    }

    fn thread(&mut self, number: ThreadId) -> Result<Thread, WatchError> {
        let threads = self.timeline.threads()?;
        let thread = threads.into_iter().find(|thread| thread.number == number);
        Ok(thread.ok_or(Error::Lost)?)
    }
}

impl Timeline {
    /// As [`Timeline::set_stops`], also when the same ones were taken away in between.
    fn set_stops_again(&mut self, stops: Stops) {
        self.stops = Stops::default();
        self.stops_id = 0;
        self.set_stops(stops);
    }
}

/// Whether it holds, and what is to be said of it.
fn verdict_of(answer: &Answer) -> (Verdict, String) {
    match &answer.value {
        Ok(value) => match value.truth {
            Some(truth) => (truth.into(), value.text.clone()),
            None => {
                let why = "it is neither true nor false".to_string();
                (Verdict::Undefined(why), value.text.clone())
            }
        },
        Err(problem) => {
            let why = problem.message.clone();
            (Verdict::Undefined(why.clone()), format!("undefined: {why}"))
        }
    }
}

fn event_text(next: &Next) -> String {
    match *next {
        Next::Call { nr } => {
            let call = clew_engine::kernel::table::lookup(nr.into());
            format!("the system call {}", call.name)
        }
        Next::Signal { signo, .. } => format!("signal {signo}"),
        Next::Switch { to } => format!("thread {to} goes on"),
        Next::Exit { .. } => "the exit".into(),
        Next::Killed { signo, .. } => format!("death by signal {signo}"),
        Next::Exec => "an exec".into(),
        Next::Fork { .. } => "a fork".into(),
        Next::Other | Next::CutOff | Next::Diverges => "an event".into(),
    }
}

/// The text of a line of a source file, as it is on disk now.
fn source_text(line: &Line) -> Option<String> {
    let path = std::path::Path::new(&*line.file);
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST_SOURCE {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let text = bytes
        .split(|byte| *byte == b'\n')
        .nth(line.line as usize - 1)?;
    let text = String::from_utf8_lossy(text);
    let text: String = text.trim().chars().take(LONGEST_LINE).collect();
    Some(text)
}
