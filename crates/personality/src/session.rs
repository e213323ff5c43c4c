//! A place among the lines of an interpreted program. In: a recording. Out: where it stands, stacks, values.

use clew_recording::event::{StreamId, ThreadId};
use clew_recording::reader::Recording;
use clew_timeline::{At, Direction, Position, Reason, Stops, Target, Timeline};

use crate::going::{Passed, Stop, Why, Wish};
use crate::{
    Breakpoint, Error, Frame, Personality, Question, Result, Spot, Told, Value, View, What,
    recognise,
};

pub struct Session {
    pub view: View,
    pub(crate) personality: Box<dyn Personality>,
    pub(crate) breakpoints: Vec<Breakpoint>,
    pub(crate) last_breakpoint: u32,
    /// Stop where an exception is raised.
    pub(crate) at_raises: bool,
    /// Places before each move.
    pub(crate) before: Vec<At>,
    /// The main program's first line: no move leads to what came before it.
    pub(crate) first: Option<(At, Position)>,
    pub(crate) passed: Passed,
    /// The main program's frame, and its thread.
    pub(crate) main: Option<(ThreadId, Frame)>,
}

/// So many moves can be undone.
const MOST_UNDONE: usize = 1_000;

impl Session {
    /// Opens a stream, and stands at the main program's first line.
    pub fn open(
        recording: &Recording,
        stream: StreamId,
        timeline: Timeline,
        language: Option<&str>,
    ) -> Result<Session> {
        let mut view = View::new(recording, stream, timeline)?;
        let personality = recognise(&mut view, language)?;
        let mut session = Session {
            view,
            personality,
            breakpoints: Vec::new(),
            last_breakpoint: 0,
            at_raises: false,
            before: Vec::new(),
            first: None,
            passed: Passed::default(),
            main: None,
        };
        session.begin()?;
        Ok(session)
    }

    pub fn language(&self) -> &'static str {
        self.personality.language()
    }

    pub fn version(&self) -> String {
        self.personality.version()
    }

    /// To the first line of the main program.
    pub fn begin(&mut self) -> Result<()> {
        if let Some((first, _)) = self.first {
            return Ok(self.view.timeline.return_to(first)?);
        }
        self.view.timeline.seek(Target::Start)?;
        loop {
            let sites = self.personality.main(&mut self.view)?;
            self.view.timeline.set_stops(Stops {
                sites,
                ..Stops::default()
            });
            let stop = self.view.timeline.run(Direction::Forward, None)?;
            self.view.timeline.set_stops(Stops::default());
            if stop.reason != Reason::Break {
                return Err(Error::Unknown(format!(
                    "the program ends before any line of its main {} program begins",
                    self.language()
                )));
            }
            let Some(moment) = self.personality.moment(&mut self.view)? else {
                continue;
            };
            if !self.personality.is_main(&mut self.view, &moment)? {
                continue;
            }
            let main = (moment.thread, moment.frame.clone());
            if !moment.begins {
                self.go(Wish::Next {
                    thread: moment.thread,
                    frames: vec![moment.frame],
                })?;
                // Where a frame is entered not all of it is there yet: asked again.
                match self.personality.moment(&mut self.view)? {
                    Some(moment) if self.personality.is_main(&mut self.view, &moment)? => {}
                    _ => continue,
                }
            }
            self.main = Some(main);
            let position = self.position()?;
            self.first = Some((self.view.timeline.at(), position));
            return Ok(());
        }
    }

    /// Where moves backwards end: what an interpreter executes in its own language before the main program isn't shown.
    pub(crate) fn lowest(&self) -> Option<Position> {
        self.first.map(|(_, position)| position)
    }

    pub fn position(&mut self) -> Result<Position> {
        Ok(self.view.timeline.position()?)
    }

    pub fn thread(&self) -> ThreadId {
        self.view.timeline.at().thread
    }

    /// The calls under way of the thread that runs here, innermost first, without the language's own machinery
    /// unless there is nothing else.
    pub fn stack(&mut self) -> Result<Vec<Frame>> {
        let thread = self.thread();
        self.personality.stack(&mut self.view, thread)
    }

    pub fn stack_of(&mut self, thread: ThreadId) -> Result<Vec<Frame>> {
        self.personality.stack(&mut self.view, thread)
    }

    pub fn threads(&mut self) -> Result<Vec<ThreadId>> {
        self.personality.threads(&mut self.view)
    }

    /// The innermost frame that is to be shown.
    pub fn here(&mut self) -> Result<Option<Frame>> {
        let stack = self.stack()?;
        let shown = stack.iter().find(|frame| !frame.hidden);
        Ok(shown.or(stack.first()).cloned())
    }

    pub fn ask(&mut self, frame: usize, what: What<'_>) -> Result<Told> {
        let question = Question {
            frame,
            anywhere: false,
            what,
        };
        self.personality.ask(&mut self.view, &question)
    }

    /// The value of an expression in a frame.
    pub fn value(&mut self, frame: usize, expression: &str) -> Result<(Value, String)> {
        let told = self.ask(frame, What::Values(&[expression]))?;
        let value = told.values.into_iter().next();
        let value = value.map_or(Value::Undefined("no answer came".into()), |(_, value)| {
            value
        });
        Ok((value, told.output))
    }

    /// Goes to a position, and back to where the line began in which that is.
    pub fn seek(&mut self, to: Target) -> Result<Stop> {
        self.remember();
        self.view.timeline.seek(to)?;
        self.settle()
    }

    /// Back to where this line began, if it didn't begin here.
    pub fn settle(&mut self) -> Result<Stop> {
        if let Some(moment) = self.personality.moment(&mut self.view)?
            && moment.begins
            && !moment.frame.hidden
        {
            return Ok(Stop { why: Why::Line });
        }
        let here = self.view.timeline.at();
        let breakpoints = std::mem::take(&mut self.breakpoints);
        let raises = std::mem::take(&mut self.at_raises);
        let stop = self.go(Wish::Back { thread: None });
        self.breakpoints = breakpoints;
        self.at_raises = raises;
        match stop?.why {
            Why::Start => {
                self.begin()?;
                Ok(Stop { why: Why::Start })
            }
            Why::Interrupted => {
                self.view.timeline.return_to(here)?;
                Ok(Stop {
                    why: Why::Interrupted,
                })
            }
            _ => Ok(Stop { why: Why::Line }),
        }
    }

    pub(crate) fn remember(&mut self) {
        if self.before.len() >= MOST_UNDONE {
            self.before.remove(0);
        }
        self.before.push(self.view.timeline.at());
    }

    /// To where it stood before the last move.
    pub fn undo(&mut self) -> Result<bool> {
        let Some(at) = self.before.pop() else {
            return Ok(false);
        };
        self.view.timeline.return_to(at)?;
        Ok(true)
    }

    pub fn add_breakpoint(
        &mut self,
        spot: Spot,
        condition: Option<String>,
        temporary: bool,
    ) -> &Breakpoint {
        self.last_breakpoint += 1;
        self.breakpoints.push(Breakpoint {
            number: self.last_breakpoint,
            spot,
            condition,
            temporary,
            hits: 0,
        });
        &self.breakpoints[self.breakpoints.len() - 1]
    }

    pub fn breakpoints(&self) -> &[Breakpoint] {
        &self.breakpoints
    }

    pub fn remove_breakpoint(&mut self, number: u32) -> bool {
        let before = self.breakpoints.len();
        self.breakpoints.retain(|one| one.number != number);
        self.breakpoints.len() != before
    }

    /// Whether to stop where exceptions are raised.
    pub fn stop_at_raises(&mut self, stop: bool) {
        self.at_raises = stop;
    }
}
