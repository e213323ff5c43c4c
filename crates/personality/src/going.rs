//! From line to line. In: which way, how far. Out: where it stops, and why.
//!
//! Each move is one or a few searches in the workers, for sites that the personality names; what is found there is
//! judged here, by the same rules for all languages. A frame is told by what a personality calls its number, which a later
//! call may have again: whoever is called anew under a number isn't the frame that had it before.

use clew_recording::event::ThreadId;
use clew_timeline::{At, Direction, Next, Position, Reason, Stops};

use crate::{Error, Frame, Moment, Result, Session, Spot, Within};

/// Where a move has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// A line begins.
    Line,
    /// The call is over, or goes to begin.
    Returned,
    Breakpoint(u32),
    /// A breakpoint's condition can't be evaluated.
    Condition(u32, String),
    /// An exception is raised.
    Raised,
    /// Nothing more in that direction.
    Start,
    End(Option<Next>),
    Interrupted,
}

/// A move.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// To the next line of the thread, wherever.
    Step {
        thread: Option<ThreadId>,
    },
    /// To the one before.
    Back {
        thread: Option<ThreadId>,
    },
    /// To the next line of the first of these frames, or of the next one if it is left.
    Next {
        thread: ThreadId,
        frames: Vec<Frame>,
    },
    /// To the line before in this frame, or where it was called.
    BackNext {
        thread: ThreadId,
        frame: Frame,
    },
    /// Into one of these frames.
    Finish {
        thread: ThreadId,
        frames: Vec<Frame>,
    },
    /// To where this frame was entered, and from there into its caller.
    BackFinish {
        thread: ThreadId,
        frame: Frame,
        entered: bool,
    },
    /// To a line behind that one in the first frame, or into the next if it is left.
    Until {
        thread: ThreadId,
        frames: Vec<Frame>,
        line: u32,
    },
    /// To a breakpoint.
    Continue,
    BackContinue,
}

impl Wish {
    fn direction(&self) -> Direction {
        match self {
            Wish::Back { .. }
            | Wish::BackNext { .. }
            | Wish::BackFinish { .. }
            | Wish::BackContinue => Direction::Backward,
            _ => Direction::Forward,
        }
    }
}

/// So much work before a place is looked at, one after the other, for the lines before it.
const NEAR: [u64; 2] = [3_000, 12_000];

/// Lines of a thread that follow on each other, in order.
#[derive(Default)]
pub(crate) struct Passed {
    thread: ThreadId,
    lines: Vec<At>,
}

impl Passed {
    /// The line before this place, if both are known.
    fn before(&self, thread: ThreadId, here: &At) -> Option<At> {
        let at = self.lines.iter().rposition(|line| is_same(line, here))?;
        let before = at.checked_sub(1)?;
        (self.thread == thread).then(|| self.lines[before])
    }
}

fn is_same(a: &At, b: &At) -> bool {
    (a.event, a.ticks, a.pc, a.sp) == (b.event, b.ticks, b.pc, b.sp)
}

/// What to do at a site.
enum Judged {
    Stop(Why),
    Go,
}

impl Session {
    /// To the next line, also one of a function that is called.
    pub fn step(&mut self, direction: Direction) -> Result<Stop> {
        let thread = self.thread();
        let of = Some(thread);
        match direction {
            Direction::Forward => self.moved(|session| session.go(Wish::Step { thread: of })),
            // Other threads may come to a breakpoint in between, and exceptions are no lines.
            Direction::Backward
                if self.at_raises || !self.breakpoints.is_empty() && self.threads()?.len() > 1 =>
            {
                self.moved(|session| session.go(Wish::Back { thread: of }))
            }
            Direction::Backward => self.moved(|session| session.step_back(thread)),
        }
    }

    /// To the next line of this function, or of its caller.
    pub fn next(&mut self, direction: Direction) -> Result<Stop> {
        let (thread, mut frames) = (self.thread(), self.shown()?);
        let at_call = self.is_at_call()?;
        let wish = match direction {
            Direction::Forward => Wish::Next { thread, frames },
            Direction::Backward => {
                if at_call && frames.len() > 1 {
                    frames.remove(0);
                }
                let frame = frames.swap_remove(0);
                Wish::BackNext { thread, frame }
            }
        };
        self.moved(|session| session.go(wish))
    }

    /// Until this function returns; back to where it was called.
    pub fn finish(&mut self, direction: Direction) -> Result<Stop> {
        let (thread, mut frames) = (self.thread(), self.shown()?);
        if frames.len() < 2 {
            return Err(Error::Refused(
                "nobody called this: there is nothing to return to; continue instead".into(),
            ));
        }
        let entered = self.is_at_call()?;
        let wish = match direction {
            Direction::Forward => {
                frames.remove(0);
                Wish::Finish { thread, frames }
            }
            Direction::Backward => {
                let frame = frames.swap_remove(if entered { 1 } else { 0 });
                Wish::BackFinish {
                    thread,
                    frame,
                    entered,
                }
            }
        };
        self.moved(|session| session.go(wish))
    }

    /// To a line behind this one, or behind the one that is given, in this function or its caller.
    pub fn until(&mut self, line: Option<u32>) -> Result<Stop> {
        let (thread, frames) = (self.thread(), self.shown()?);
        let line = line.map_or(frames[0].line, |line| line.saturating_sub(1));
        let wish = Wish::Until {
            thread,
            frames,
            line,
        };
        self.moved(|session| session.go(wish))
    }

    /// To a breakpoint, or the end, or the start.
    pub fn run(&mut self, direction: Direction) -> Result<Stop> {
        let wish = match direction {
            Direction::Forward => Wish::Continue,
            Direction::Backward => Wish::BackContinue,
        };
        self.moved(|session| session.go(wish))
    }

    /// Whether the innermost call begins right here.
    fn is_at_call(&mut self) -> Result<bool> {
        let moment = self.personality.moment(&mut self.view)?;
        Ok(moment.is_some_and(|moment| moment.called))
    }

    /// The frames of the thread that runs, from the innermost that is shown.
    fn shown(&mut self) -> Result<Vec<Frame>> {
        let mut frames = self.stack()?;
        if let Some(first) = frames.iter().position(|frame| !frame.hidden) {
            frames.drain(..first);
        }
        match frames.is_empty() {
            true => Err(Error::Refused(format!(
                "the thread that runs here runs no {}; step or continue",
                self.language()
            ))),
            false => Ok(frames),
        }
    }

    /// A move that can be undone.
    fn moved(&mut self, go: impl FnOnce(&mut Session) -> Result<Stop>) -> Result<Stop> {
        self.remember();
        let stop = go(self);
        match &stop {
            // It may stand anywhere.
            Err(_) => {
                self.undo()?;
            }
            // Nothing of the program's own is before its first line.
            Ok(Stop { why: Why::Start }) => self.begin()?,
            Ok(_) => {}
        }
        stop
    }

    /// To the line before of this thread. A search backwards for one line costs as much as going on over many, so those that are
    /// near are remembered.
    fn step_back(&mut self, thread: ThreadId) -> Result<Stop> {
        let here = self.view.timeline.at();
        let mut before = self.passed.before(thread, &here);
        if before.is_none() {
            let breakpoints = std::mem::take(&mut self.breakpoints);
            let lines = self.lines_before(thread);
            self.breakpoints = breakpoints;
            let lines = lines?;
            self.passed = Passed { thread, lines };
            before = self.passed.before(thread, &here);
        }
        let Some(before) = before else {
            self.view.timeline.return_to(here)?;
            let thread = Some(thread);
            return self.go(Wish::Back { thread });
        };
        self.view.timeline.return_to(before)?;
        let why = match self.personality.moment(&mut self.view)? {
            Some(moment) => self.breakpoint(&moment)?,
            None => None,
        };
        let why = why.unwrap_or(Why::Line);
        Ok(Stop { why })
    }

    /// Lines of a thread shortly before this place, if there are any, and this place itself.
    fn lines_before(&mut self, thread: ThreadId) -> Result<Vec<At>> {
        // Where a line begins here, the way ends by coming to it.
        let begins = self.personality.moment(&mut self.view)?;
        let end = match begins.is_some_and(|moment| moment.begins && !moment.frame.hidden) {
            true => None,
            false => Some(self.position()?),
        };
        let here = self.view.timeline.at();
        let first = self.first.map_or(here, |(first, _)| first);
        if is_same(&first, &here) {
            return Ok(vec![here]);
        }
        let mut lines = Vec::new();
        for way in NEAR {
            let from = here.work.saturating_sub(way);
            let whole = from <= first.work;
            if whole {
                self.begin()?;
                if first.thread == thread {
                    lines.push(first);
                }
            } else {
                self.view.timeline.go_to_work(from)?;
            }
            loop {
                let of = Some(thread);
                let stop = self.go_up_to(Wish::Step { thread: of }, end)?;
                let at = self.view.timeline.at();
                match stop.why {
                    Why::Line if !is_same(&at, &here) => lines.push(at),
                    Why::Interrupted => return Err(clew_timeline::Error::Interrupted.into()),
                    _ => break,
                }
            }
            if whole || !lines.is_empty() {
                break;
            }
        }
        lines.push(here);
        Ok(lines)
    }

    pub(crate) fn go(&mut self, wish: Wish) -> Result<Stop> {
        let until = match wish.direction() {
            Direction::Backward => self.lowest(),
            Direction::Forward => None,
        };
        self.go_up_to(wish, until)
    }

    fn go_up_to(&mut self, mut wish: Wish, until: Option<Position>) -> Result<Stop> {
        let direction = wish.direction();
        let mut moment = self.personality.moment(&mut self.view)?;
        let why = loop {
            let stops = self.stops(&wish, moment.as_ref())?;
            self.view.timeline.set_stops(stops);
            let stop = self.view.timeline.run(direction, until);
            self.view.timeline.set_stops(Default::default());
            match stop?.reason {
                Reason::Start | Reason::Arrived => break Why::Start,
                Reason::End(next) => break Why::End(Some(next)),
                Reason::Interrupted => break Why::Interrupted,
                Reason::Break | Reason::Watch { .. } | Reason::Event(_) => {}
            }
            moment = self.personality.moment(&mut self.view)?;
            let judged = match &moment {
                Some(moment) => match self.breakpoint(moment)? {
                    Some(why) => Judged::Stop(why),
                    None => self.judge(&mut wish, moment)?,
                },
                None if self.at_raises => match self.personality.raised(&mut self.view)? {
                    Some(raised) if raised.new => Judged::Stop(Why::Raised),
                    _ => Judged::Go,
                },
                None => Judged::Go,
            };
            if let Judged::Stop(why) = judged {
                break why;
            }
        };
        Ok(Stop { why })
    }

    fn stops(&mut self, wish: &Wish, from: Option<&Moment>) -> Result<Stops> {
        let within = match wish {
            Wish::Step { thread } | Wish::Back { thread } => Some(Within::Any {
                thread: *thread,
                from,
            }),
            Wish::Next { thread, frames } | Wish::Until { thread, frames, .. } => {
                Some(Within::Frames {
                    thread: *thread,
                    frames,
                    any: false,
                })
            }
            Wish::Finish { thread, frames } => Some(Within::Frames {
                thread: *thread,
                frames,
                any: true,
            }),
            Wish::BackNext { thread, frame } => Some(Within::Frames {
                thread: *thread,
                frames: std::slice::from_ref(frame),
                any: false,
            }),
            Wish::BackFinish {
                thread,
                frame,
                entered,
            } => Some(Within::Frames {
                thread: *thread,
                frames: std::slice::from_ref(frame),
                any: *entered,
            }),
            Wish::Continue | Wish::BackContinue => None,
        };
        let mut stops = match self.at_raises {
            true => {
                let raises = self.personality.raises(&mut self.view, false)?;
                raises.unwrap_or_default()
            }
            false => Stops::default(),
        };
        if let Some(within) = within {
            stops.sites = self.personality.lines(&mut self.view, within)?;
        }
        let spots: Vec<(Spot, Option<String>)> = self
            .breakpoints
            .iter()
            .map(|one| (one.spot.clone(), one.condition.clone()))
            .collect();
        if !spots.is_empty() {
            let sites = self.personality.spots(&mut self.view, &spots)?;
            stops.sites.extend(sites);
        }
        Ok(stops)
    }

    /// The breakpoint that counts at this moment.
    fn breakpoint(&mut self, moment: &Moment) -> Result<Option<Why>> {
        let mut hit = None;
        for n in 0..self.breakpoints.len() {
            let spot = self.breakpoints[n].spot.clone();
            // All are asked: they learn by it.
            if self.personality.is_spot(&mut self.view, moment, &spot)? && hit.is_none() {
                hit = Some(n);
            }
        }
        let Some(n) = hit else {
            return Ok(None);
        };
        let number = self.breakpoints[n].number;
        if let Some(condition) = self.breakpoints[n].condition.clone() {
            match self.value(0, &condition)?.0 {
                crate::Value::Is { truth: false, .. } => return Ok(None),
                crate::Value::Is { .. } => {}
                crate::Value::Undefined(why) => return Ok(Some(Why::Condition(number, why))),
            }
        }
        self.breakpoints[n].hits += 1;
        if self.breakpoints[n].temporary {
            self.breakpoints.remove(n);
        }
        Ok(Some(Why::Breakpoint(number)))
    }

    fn judge(&mut self, wish: &mut Wish, moment: &Moment) -> Result<Judged> {
        let line = moment.begins && !moment.frame.hidden;
        let id = moment.frame.id;
        let stop = |stop: bool, why| match stop {
            true => Judged::Stop(why),
            false => Judged::Go,
        };
        Ok(match wish {
            Wish::Step { thread } | Wish::Back { thread } => {
                let own = thread.is_none_or(|thread| thread == moment.thread);
                stop(line && own, Why::Line)
            }
            Wish::Next { thread, frames }
            | Wish::Finish { thread, frames }
            | Wish::Until { thread, frames, .. }
                if *thread != moment.thread || !frames.iter().any(|frame| frame.id == id) =>
            {
                Judged::Go
            }
            Wish::Next { frames, .. }
            | Wish::Finish { frames, .. }
            | Wish::Until { frames, .. }
                if moment.called =>
            {
                // Another call under that number: the frame is gone, and all within it.
                let gone = frames.iter().position(|frame| frame.id == id);
                frames.drain(..gone.map_or(0, |gone| gone + 1));
                Judged::Go
            }
            Wish::Next { .. } => stop(line, Why::Line),
            Wish::Finish { .. } => stop(!moment.frame.hidden, Why::Returned),
            Wish::Until {
                frames, line: last, ..
            } => {
                let own = frames[0].id == id;
                stop(line && (!own || moment.frame.line > *last), Why::Line)
            }
            Wish::BackNext { thread, frame } => {
                // After a frame is gone, others may be in its place.
                let own = frame.id == id && frame.code == moment.frame.code;
                if *thread != moment.thread || !own {
                    Judged::Go
                } else if line {
                    Judged::Stop(Why::Line)
                } else if moment.enters {
                    self.go_into_caller(frame)?
                } else {
                    Judged::Go
                }
            }
            Wish::BackFinish {
                thread,
                frame,
                entered,
            } => {
                if *thread != moment.thread || frame.id != id {
                    Judged::Go
                } else if *entered {
                    Judged::Stop(Why::Returned)
                } else if moment.enters {
                    *entered = true;
                    self.go_into_caller(frame)?
                } else {
                    Judged::Go
                }
            }
            Wish::Continue | Wish::BackContinue => Judged::Go,
        })
    }

    /// At a frame's beginning: its caller's is the frame to look at from now on.
    fn go_into_caller(&mut self, frame: &mut Frame) -> Result<Judged> {
        let stack = self.stack()?;
        let mut callers = stack.into_iter().skip(1);
        match callers.find(|caller| !caller.hidden) {
            Some(caller) => {
                *frame = caller;
                Ok(Judged::Go)
            }
            None => Ok(Judged::Stop(Why::Start)),
        }
    }
}
