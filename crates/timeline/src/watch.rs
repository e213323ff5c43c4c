//! Expression-transition watch. In: a C expression and two positions. Out: a place in the program where it flips, with
//! thread, stack, line and the values involved; or that it doesn't, as far as anybody has looked.
//!
//! The question and the report are the same for `clew watch` and for gdb.

use clew_recording::event::ThreadId;
use clew_symbols::expr::{self, Bindings, ProblemKind};
use clew_symbols::variables::SymbolKind;
use clew_symbols::{Line, Stack};

use crate::program::{Answer, Program};
use crate::transition::{Flip, Probed, Search, Verdict};
use crate::{Break, Direction, Error, Next, Position, Reason, Stops, Target, Thread, Timeline};

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
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The expression is at fault: what, and where in it.
    #[error("{0}")]
    Expression(String),
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
    /// The innermost frame's line whose source is known.
    pub line: Option<Line>,
    pub function: Option<String>,
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
    }
    .run(question);
    timeline.set_stops_again(stops);
    if !matches!(&report, Ok(report) if !report.flips.is_empty()) {
        timeline.seek(Target::Position(stood))?;
    }
    report
}

struct Watch<'a> {
    timeline: &'a mut Timeline,
    program: &'a mut Program,
    text: String,
    names: Bindings,
    ticks: u64,
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
            return Err(Error::Refused(format!(
                "there is nothing between {from} and {to}: the first position must lie before the second"
            ))
            .into());
        }
        let (a, b) = self.ends(from, to)?;
        let (timeline, program) = (&mut *self.timeline, &mut *self.program);
        let (text, ticks) = (self.text.as_str(), self.ticks);
        let mut names = self.names.clone();
        let mut values: Vec<(Position, String)> = vec![a.1, b.1];
        let (a, b) = (a.0, b.0);
        let probe = |timeline: &mut Timeline| {
            let answer = program.evaluate(timeline, text, &mut names, ticks)?;
            let (verdict, shown) = verdict_of(&answer);
            values.push((timeline.position()?, shown));
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
        let probes = search.probes + 2;
        let seen = |probed: &Probed| {
            let known = values.iter().find(|(at, _)| *at == probed.position);
            Seen {
                position: probed.position,
                truth: probed.verdict.truth(),
                text: known.map(|(_, text)| text.clone()).unwrap_or_default(),
            }
        };
        let (from, to) = (seen(&a), seen(&b));
        let samples: Vec<Seen> = samples.iter().map(seen).collect();
        self.names = names;
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
        self.timeline.seek(target)?;
        Ok(self.timeline.position()?)
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

    /// The verdicts at both ends, each with its value. From here on names mean what they meant there.
    #[allow(clippy::type_complexity)]
    fn ends(
        &mut self,
        from: Position,
        to: Position,
    ) -> Result<((Probed, (Position, String)), (Probed, (Position, String))), WatchError> {
        let (b, names_b) = self.end(to)?;
        let (a, names_a) = self.end(from)?;
        if let Some(conflict) = names_a.conflict(&names_b) {
            return Err(WatchError::Expression(conflict));
        }
        // Nowhere to be seen: a wrong name, or a variable of a function that isn't running.
        let unknown = |answer: &Answer| match &answer.value {
            Err(problem) if problem.kind == ProblemKind::Unknown => Some(problem.clone()),
            _ => None,
        };
        if let (Some(problem), Some(_)) = (unknown(&b.1), unknown(&a.1)) {
            return Err(WatchError::Expression(format!(
                "{}\nIt is neither at {from} nor at {to}. If it is a variable of a function, choose positions within a \
                 call of that function: --from POS --to POS",
                problem.pointed(&self.text)
            )));
        }
        self.names = names_a;
        self.names.merge(&names_b);
        self.names.pin();
        self.ticks = self.ticks.saturating_mul(TIMES);
        let pair = |(probed, answer): (Probed, Answer)| {
            let (_, text) = verdict_of(&answer);
            let position = probed.position;
            (probed, (position, text))
        };
        Ok((pair(a), pair(b)))
    }

    /// The expression at one end, with as much time for its calls as they need.
    fn end(&mut self, at: Position) -> Result<((Probed, Answer), Bindings), WatchError> {
        self.timeline.seek(Target::Position(at))?;
        let mut names = Bindings::new();
        let mut answer = None;
        for ticks in PATIENCE {
            if ticks < self.ticks {
                continue;
            }
            names = Bindings::new();
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
        match &answer.value {
            Err(problem) if problem.kind == ProblemKind::Wrong => {
                return Err(WatchError::Expression(problem.pointed(&self.text)));
            }
            Ok(value) if value.truth.is_none() => {
                return Err(WatchError::Expression(format!(
                    "{} is neither true nor false; compare it, or a part of it, with something",
                    self.text
                )));
            }
            _ => {}
        }
        let probed = Probed {
            position: self.timeline.position()?,
            work: self.timeline.at().work,
            verdict: verdict_of(&answer).0,
        };
        Ok(((probed, answer), names))
    }

    /// Looks around at a flip; leaves the timeline before it.
    fn found(&mut self, flip: Flip) -> Result<Found, WatchError> {
        let parts = expr::parts(&self.text);
        let mut all = vec![self.text.as_str()];
        all.extend(parts.iter().take(MOST_PARTS).map(String::as_str));
        self.timeline.seek(Target::Position(flip.after()))?;
        let after = self
            .program
            .evaluate_all(self.timeline, &all, &mut self.names, self.ticks)?;
        self.timeline.seek(Target::Position(flip.before()))?;
        let before = self
            .program
            .evaluate_all(self.timeline, &all, &mut self.names, self.ticks)?;
        let values = all
            .iter()
            .zip(before.iter().zip(&after))
            .map(|(expression, (before, after))| Change {
                expression: expression.to_string(),
                before: verdict_of(before).1,
                after: verdict_of(after).1,
            })
            .collect();
        let number = self.timeline.at().thread;
        let thread = self.thread(number)?;
        let stack = self.program.stack(self.timeline, number)?;
        let known = stack
            .frames
            .iter()
            .find(|frame| frame.line.as_ref().is_some_and(|line| line.line != 0));
        let line = known.and_then(|frame| frame.line.clone());
        let function = stack
            .frames
            .first()
            .and_then(|frame| frame.function.clone());
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
            line,
            function,
            event,
            values,
        })
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
        Next::Other | Next::CutOff => "an event".into(),
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

impl Report {
    /// Whether a flip was found.
    pub fn is_found(&self) -> bool {
        !self.flips.is_empty()
    }

    /// In words for people; each flip's position, stack and values. `paint`: how titles look.
    pub fn text(&self, paint: &dyn Fn(Tint, &str) -> String) -> String {
        let mut out = String::new();
        let mut say = |line: String| {
            out.push_str(line.trim_end());
            out.push('\n');
        };
        if !self.samples.is_empty() {
            let ends = [&self.from].into_iter();
            for seen in ends.chain(&self.samples).chain([&self.to]) {
                say(format!(
                    "{:>16}  {}",
                    seen.position.to_string(),
                    plain(&seen.text)
                ));
            }
            say(String::new());
        }
        if self.flips.is_empty() {
            say(self.nothing());
            return out;
        }
        for (n, found) in self.flips.iter().enumerate() {
            if n > 0 {
                say(String::new());
            }
            found.describe(&self.expression, paint, &mut say);
        }
        out
    }

    /// Why there is no flip.
    fn nothing(&self) -> String {
        let word = |seen: &Seen| match seen.truth {
            Some(true) => "true".to_string(),
            Some(false) => "false".to_string(),
            None => plain(&seen.text),
        };
        let (from, to) = (&self.from, &self.to);
        let ends = match (from.truth, to.truth) {
            (Some(a), Some(b)) if a == b => {
                format!(
                    "{} is {a} at both ends ({} and {})",
                    self.expression, from.position, to.position
                )
            }
            _ => format!(
                "{} is {} at {}, {} at {}",
                self.expression,
                word(from),
                from.position,
                word(to),
                to.position
            ),
        };
        let defined = self.samples.iter().filter(|seen| seen.truth.is_some());
        let truths: Vec<bool> = defined.filter_map(|seen| seen.truth).collect();
        match (self.samples.len(), truths.first()) {
            (0, _) => format!(
                "{ends}: no flip to search for. --sample N looks at N places in between; --from and --to \
                 choose others."
            ),
            (looked, None) => format!(
                "{ends}, and undefined at {looked} places in between. --sample N looks at more."
            ),
            (looked, Some(truth)) => format!(
                "{ends}, and {truth} wherever it is defined among {looked} places in between. --sample N \
                 looks at more; --from and --to choose others."
            ),
        }
    }
}

/// What a piece of a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    Title,
    Position,
    Source,
    Faint,
}

impl Found {
    fn describe(
        &self,
        expression: &str,
        paint: &dyn Fn(Tint, &str) -> String,
        say: &mut dyn FnMut(String),
    ) {
        let became = self.flip.to();
        let position = self.flip.before().to_string();
        let place = paint(Tint::Position, &position);
        let title = paint(Tint::Title, &format!("{expression} becomes {became}"));
        match &self.flip {
            Flip::At { .. } => say(format!("{title} at {place}")),
            Flip::Across { after, why, .. } => {
                say(format!(
                    "{title} somewhere between {place} and {after}: it is undefined in between"
                ));
                say(format!("  ({})", plain(why)));
            }
        }
        let thread = &self.thread;
        let name = plain(&thread.name);
        let function = self.function.as_deref().unwrap_or("??");
        say(format!(
            "  thread {} ({name}, tid {}) in {}",
            thread.number,
            thread.tid,
            plain(function)
        ));
        if let Some(event) = &self.event {
            say(format!("  by {event}"));
        }
        if let Some(line) = &self.line {
            say(format!("  {}:{}", plain(&line.file), line.line));
            if let Some(source) = &self.source {
                let number = line.line.to_string();
                let text = paint(Tint::Source, &plain(source));
                say(format!("  {}  {text}", paint(Tint::Faint, &number)));
            }
        }
        say(String::new());
        let width = self
            .values
            .iter()
            .map(|change| change.expression.chars().count());
        let width = width.max().unwrap_or(0).min(40);
        for change in &self.values {
            let fill = " ".repeat(width.saturating_sub(change.expression.chars().count()));
            let (before, after) = (plain(&change.before), plain(&change.after));
            let expression = plain(&change.expression);
            if before == after {
                say(format!("  {expression}{fill}  {before}"));
            } else {
                say(format!("  {expression}{fill}  {before} -> {after}"));
            }
        }
        say(String::new());
        for (n, frame) in self.stack.frames.iter().enumerate() {
            say(format!("  #{n:<3}{}", plain(&frame.to_string())));
        }
    }
}

/// A program's strings without what a terminal would obey.
fn plain(text: &str) -> String {
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::new();
    for c in text.chars() {
        if odd(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}
