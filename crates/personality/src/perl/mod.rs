//! Perl 5.36. In: a recorded interpreter. Out: its frames, lines and values.
//!
//! A statement begins with `pp_nextstate`, whose first instruction is the only site. A frame is known by its pad, the memory of
//! its variables: each subroutine has one for each level of recursion.

mod evaluate;

use std::collections::HashMap;

use clew_recording::event::ThreadId;
use clew_timeline::{Break, Direction, Reason, Sites, Stops, Target};

use crate::agent::Code as Agent;
use crate::breakpoints::Spot;
use crate::view::{half, word};
use crate::{Error, Frame, Moment, Personality, Question, Raised, Result, Told, View, Within};

/// Versions whose offsets these are: from the headers of Debian's perl, with threads.
const KNOWN: [u8; 1] = [36];

/// In the interpreter.
const OP: u64 = 8;
const CURRENT: u64 = 208;
const STACK_INFO: u64 = 224;
const PAD: u64 = 288;
const MAIN_CODE: u64 = 1800;
const PHASE: u64 = 2512;
const RUNS: u64 = 4;
/// In operations.
const FUNCTION: u64 = 16;
const LINE: u64 = 36;
const FILE: u64 = 48;
const SEQUENCE: u64 = 60;
/// In information about stacks, and the contexts on them.
const CONTEXTS: u64 = 8;
const BEFORE: u64 = 16;
const INNERMOST: u64 = 32;
const CONTEXT: u64 = 104;
const OLD: u64 = 16;
const CODE: u64 = 72;
const OLD_PAD: u64 = 64;
const KIND: u8 = 15;
const SUBROUTINE: u8 = 9;
/// In code, behind the pointer to its body.
const START: u64 = 40;
const NAME: u64 = 56;
const FLAGS: u64 = 92;
const PADS: u64 = 72;
const NAMED: u32 = 32768;
const NAME_OF_GLOB: u64 = 32;
const KEY: u64 = 8;

/// Registers with the first argument, as instructions number them.
const RDI: u8 = 7;
const MOST_FRAMES: usize = 2_000;
const MOST_CONTEXTS: u64 = 1 << 16;

pub struct Perl {
    version: (u8, u8),
    site: u64,
    /// First operations of functions, by name, as they were found.
    starts: HashMap<String, u64>,
}

impl Perl {
    /// Knows the interpreter by its symbols, and compares what is believed of it with its first statement.
    pub fn recognise(view: &mut View) -> Result<Perl> {
        let Some((site, _)) = view.symbol("Perl_pp_nextstate") else {
            return Err(Error::Unknown("it is no Perl".into()));
        };
        let unknown = |what: &str| {
            Error::Unknown(format!(
                "this Perl isn't known: {what}; 5.36 with threads is. gdb (--personality c) works on any program"
            ))
        };
        let here = view.timeline.position()?;
        view.timeline.set_stops(Stops {
            breaks: vec![Break {
                addr: site,
                thread: None,
                conditions: Vec::new(),
            }],
            ..Stops::default()
        });
        view.timeline.seek(Target::Start)?;
        let stop = view.timeline.run(Direction::Forward, None)?;
        view.timeline.set_stops(Stops::default());
        if stop.reason != Reason::Break {
            return Err(Error::Unknown("it executes no statement at all".into()));
        }
        let (version, subversion) = (view.address("PL_version")?, view.address("PL_subversion")?);
        let version = (view.bytes(version, 1)?[0], view.bytes(subversion, 1)?[0]);
        if !KNOWN.contains(&version.0) {
            return Err(unknown(&format!("it is 5.{}", version.0)));
        }
        let mut perl = Perl {
            version,
            site,
            starts: HashMap::new(),
        };
        if !perl.fits(view).unwrap_or(false) {
            return Err(unknown("its structures aren't where they are expected"));
        }
        view.timeline.seek(Target::Position(here))?;
        Ok(perl)
    }

    /// At the first statement: is the operation one that begins statements, and does it know a file?
    fn fits(&mut self, view: &mut View) -> Result<bool> {
        let thread = view.timeline.at().thread;
        let interpreter = view.registers(thread)?.words[usize::from(RDI)];
        let op = view.word(interpreter + OP)?;
        let file = view.word(op + FILE)?;
        let file = view.string(file)?;
        Ok(view.word(op + FUNCTION)? == self.site
            && !file.is_empty()
            && view.word(interpreter + PAD)? != 0
            && !self.stack(view, thread)?.is_empty())
    }

    fn is_at_site(&self, view: &View) -> bool {
        view.timeline.at().pc == self.site
    }

    /// The interpreter of the thread that runs.
    fn interpreter(&self, view: &mut View) -> Result<u64> {
        if self.is_at_site(view) {
            let thread = view.timeline.at().thread;
            return Ok(view.registers(thread)?.words[usize::from(RDI)]);
        }
        let current = view.address("PL_curinterp")?;
        view.word(current)
    }

    /// The statement that begins here, or was begun last.
    fn statement(&self, view: &mut View, interpreter: u64) -> Result<u64> {
        let at = if self.is_at_site(view) { OP } else { CURRENT };
        view.word(interpreter + at)
    }

    fn frame(view: &mut View, id: u64, code: u64, main: u64, statement: u64) -> Result<Frame> {
        let head = view.bytes(statement, SEQUENCE as usize + 4)?;
        let file = view.string(word(&head, FILE as usize))?;
        Ok(Frame {
            id,
            code,
            function: match code == main {
                true => "main program".into(),
                false => name(view, code)?,
            },
            file,
            line: half(&head, LINE as usize),
            hidden: false,
        })
    }

    fn site(&self, thread: Option<ThreadId>, condition: Option<Agent>) -> Sites {
        Sites {
            addrs: vec![self.site],
            thread,
            gate: None,
            conditions: condition.into_iter().map(Agent::end).collect(),
        }
    }

    /// The first operation of a function that is defined here.
    fn start(&mut self, view: &mut View, function: &str) -> Result<Option<u64>> {
        if let Some(&known) = self.starts.get(function) {
            return Ok(Some(known));
        }
        let question = format!("defined &{function} ? 0 + \\&{function} : 0");
        let Some(code) = self.number(view, &question)? else {
            return Ok(None);
        };
        let body = view.word(code)?;
        let start = view.word(body + START)?;
        self.starts.insert(function.into(), start);
        Ok(Some(start).filter(|&start| start != 0))
    }
}

/// A subroutine's name, without its package.
fn name(view: &mut View, code: u64) -> Result<String> {
    let body = view.word(code)?;
    let flags = view.bytes(body + FLAGS, 4)?;
    let named = view.word(body + NAME)?;
    if named == 0 {
        return Ok("__ANON__".into());
    }
    let key = match half(&flags, 0) & NAMED != 0 {
        true => named,
        false => {
            let glob = view.word(named)?;
            view.word(glob + NAME_OF_GLOB)?
        }
    };
    view.string(key + KEY)
}

impl Personality for Perl {
    fn language(&self) -> &'static str {
        "perl"
    }

    fn version(&self) -> String {
        format!("Perl 5.{}.{}", self.version.0, self.version.1)
    }

    fn moment(&mut self, view: &mut View) -> Result<Option<Moment>> {
        if !self.is_at_site(view) {
            return Ok(None);
        }
        let thread = view.timeline.at().thread;
        let interpreter = self.interpreter(view)?;
        let place = view.word(interpreter + OP)?;
        let Some(frame) = self.stack(view, thread)?.into_iter().next() else {
            return Ok(None);
        };
        let body = view.word(frame.code)?;
        let called = view.word(body + START)? == place;
        Ok(Some(Moment {
            thread,
            frame,
            place,
            begins: true,
            enters: called,
            called,
        }))
    }

    fn stack(&mut self, view: &mut View, thread: ThreadId) -> Result<Vec<Frame>> {
        let mut frames = Vec::new();
        if thread != view.timeline.at().thread {
            return Ok(frames);
        }
        let interpreter = self.interpreter(view)?;
        if interpreter == 0 {
            return Ok(frames);
        }
        let main = view.word(interpreter + MAIN_CODE)?;
        let mut statement = self.statement(view, interpreter)?;
        let mut pad = view.word(interpreter + PAD)?;
        let mut info = view.word(interpreter + STACK_INFO)?;
        while info != 0 && frames.len() < MOST_FRAMES {
            let head = view.bytes(info, INNERMOST as usize + 4)?;
            let first = word(&head, CONTEXTS as usize);
            let innermost = half(&head, INNERMOST as usize) as i32;
            let count = (i64::from(innermost) + 1).clamp(0, MOST_CONTEXTS as i64) as u64;
            for n in (0..count).rev() {
                let context = view.bytes(first + n * CONTEXT, CONTEXT as usize)?;
                if context[0] & KIND != SUBROUTINE {
                    continue;
                }
                let code = word(&context, CODE as usize);
                frames.push(Perl::frame(view, pad, code, main, statement)?);
                statement = word(&context, OLD as usize);
                pad = word(&context, OLD_PAD as usize);
            }
            info = word(&head, BEFORE as usize);
        }
        if statement != 0 {
            frames.push(Perl::frame(view, pad, main, main, statement)?);
        }
        Ok(frames)
    }

    fn lines(&mut self, _view: &mut View, within: Within<'_>) -> Result<Vec<Sites>> {
        Ok(match within {
            Within::Any { thread, .. } => vec![self.site(thread, None)],
            Within::Frames { thread, frames, .. } => {
                let mut pads: Vec<(u64, u64)> = frames
                    .iter()
                    .map(|frame| (frame.id, frame.id + 1))
                    .collect();
                pads.sort_unstable();
                pads.dedup();
                let pad = Agent::new().register(RDI).word(PAD);
                let condition = Agent::within(&pad, &pads);
                vec![self.site(Some(thread), Some(condition).filter(Agent::fits))]
            }
        })
    }

    fn spots(&mut self, view: &mut View, spots: &[(Spot, Option<String>)]) -> Result<Vec<Sites>> {
        let mut all = Vec::new();
        for (spot, _) in spots {
            let op = Agent::new().register(RDI).word(OP);
            let condition = match spot {
                Spot::Line { line, .. } => op.half(LINE).equals((*line).into()),
                Spot::Function { name } => match self.start(view, name)? {
                    Some(start) => op.equals(start),
                    None => {
                        return Err(Error::Refused(format!(
                            "no subroutine {name} is defined here; give its package (Package::{name}), or go on first"
                        )));
                    }
                },
            };
            all.push(self.site(None, Some(condition)));
        }
        Ok(all)
    }

    fn is_spot(&mut self, view: &mut View, moment: &Moment, spot: &Spot) -> Result<bool> {
        Ok(match spot {
            Spot::Line { file, line } => {
                let before = moment.frame.file.strip_suffix(file.as_str());
                let same = before.is_some_and(|before| before.is_empty() || before.ends_with('/'));
                same && moment.frame.line == *line
            }
            Spot::Function { name } => self.start(view, name)? == Some(moment.place),
        })
    }

    fn raises(&mut self, view: &mut View, _ends: bool) -> Result<Option<Stops>> {
        let addr = view.address("Perl_die_unwind")?;
        Ok(Some(Stops {
            breaks: vec![Break {
                addr,
                thread: None,
                conditions: Vec::new(),
            }],
            ..Stops::default()
        }))
    }

    fn raised(&mut self, _view: &mut View) -> Result<Option<Raised>> {
        Ok(Some(Raised {
            new: true,
            ends: true,
            what: 0,
        }))
    }

    fn main(&mut self, _view: &mut View) -> Result<Vec<Sites>> {
        let phase = Agent::new().register(RDI).half(PHASE);
        Ok(vec![self.site(None, Some(phase.equals(RUNS)))])
    }

    fn is_main(&mut self, _view: &mut View, _moment: &Moment) -> Result<bool> {
        Ok(true)
    }

    fn ask(&mut self, view: &mut View, question: &Question<'_>) -> Result<Told> {
        self.evaluate(view, question)
    }

    fn threads(&mut self, view: &mut View) -> Result<Vec<ThreadId>> {
        Ok(vec![view.timeline.at().thread])
    }
}
