//! Changes of a variable. In: an expression that has a place in memory here. Out: its last change before here; or all
//! changes over its life, with who made them, where, and what it was before and after.
//!
//! Of a variable of a function, its life is that of the call; of anything else, the program's.

use clew_recording::event::ThreadId;
use clew_symbols::Registers;
use clew_symbols::expr::{Bindings, Evaluator};
use clew_symbols::value::{Place, Value};
use clew_timeline::{Direction, Mark, Position, Reason, Stops, Target, Watch, WatchKind};
use serde::Serialize;

use crate::calls::Captured;
use crate::debugger::{Debugger, Location, location_at};
use crate::going::Came;
use crate::{Error, Result};

/// Larger things aren't compared.
const LARGEST: u64 = 1 << 16;

/// All changes of a variable, or as many as were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changes {
    pub expression: String,
    #[serde(rename = "type")]
    pub of: String,
    #[serde(serialize_with = "crate::debugger::hexadecimal")]
    pub address: u64,
    pub size: u64,
    /// The function whose call it belongs to: changes of that call alone are told.
    pub function: Option<String>,
    pub changes: Vec<Change>,
    /// There are no more.
    pub complete: bool,
    /// Somebody interrupted: these are the changes until then.
    pub interrupted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Before the instruction, or the event, that changes it.
    pub position: String,
    pub thread: ThreadId,
    pub location: Location,
    /// An event did it, such as a system call: the location is where the thread stood.
    pub by_event: bool,
    /// None: there was no memory.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// A piece of memory with its type.
struct Watched {
    value: Value,
    of: String,
    address: u64,
    size: u64,
}

impl Debugger {
    /// Back to the last change of an expression's value in memory: it stands before it, in the thread that made it. None
    /// if it doesn't change before here; then it stays.
    pub fn last_change(
        &mut self,
        thread: ThreadId,
        frame: usize,
        expression: &str,
    ) -> Result<Option<Change>> {
        let watched = self.watched(thread, frame, expression)?;
        let Some(stop) = self.back_to_change(watched.address, watched.size)? else {
            return Ok(None);
        };
        let position = self.timeline.position()?;
        let before = self.memory(watched.address, watched.size)?;
        let by_event = self.timeline.at().next.is_some();
        self.timeline.step(Direction::Forward, stop.thread)?;
        let after = self.memory(watched.address, watched.size)?;
        self.timeline.seek(Target::Position(position))?;
        let modules = self.program.modules(&mut self.timeline)?;
        Ok(Some(Change {
            position: position.to_string(),
            thread: stop.thread,
            location: location_at(&modules, stop.pc),
            by_event,
            before: before.map(|bytes| self.text(&watched, &bytes)),
            after: after.map(|bytes| self.text(&watched, &bytes)),
        }))
    }

    /// Back to the last change of a piece of memory: it stands before it, in the thread that made it, which is told. None if
    /// it doesn't change before here; then it stays.
    pub fn last_change_of(&mut self, address: u64, size: u64) -> Result<Option<ThreadId>> {
        let stop = self.back_to_change(address, size)?;
        Ok(stop.map(|stop| stop.thread))
    }

    fn back_to_change(&mut self, address: u64, size: u64) -> Result<Option<clew_timeline::Stop>> {
        let here = self.timeline.position()?;
        self.timeline.set_stops(Stops {
            watches: vec![Watch {
                addr: address,
                len: size,
                kind: WatchKind::Change,
            }],
            ..Stops::default()
        });
        self.searches += 1;
        let stop = self.timeline.run(Direction::Backward, None);
        self.timeline.set_stops(Stops::default());
        let stop = stop?;
        self.moved();
        if stop.reason == Reason::Interrupted {
            return Err(clew_timeline::Error::Interrupted.into());
        }
        if !matches!(stop.reason, Reason::Watch { .. }) {
            self.timeline.seek(Target::Position(here))?;
            return Ok(None);
        }
        self.thread = stop.thread;
        Ok(Some(stop))
    }

    /// All changes of an expression's value in memory, at most so many; it stays where it is.
    pub fn changes(
        &mut self,
        thread: ThreadId,
        frame: usize,
        expression: &str,
        most: u64,
    ) -> Result<Changes> {
        let watched = self.watched(thread, frame, expression)?;
        let here = self.timeline.position()?;
        let life = self.life(thread, watched.address);
        self.timeline.seek(Target::Position(here))?;
        let (function, from, to) = match life? {
            Some((function, from, to)) => (Some(function), from, to),
            None => (None, self.timeline.start(), None),
        };
        let place = (watched.address, watched.size);
        let seen = self.timeline.changes(place, from, to, most)?;
        let marks: Vec<Mark> = seen.all.iter().map(|change| change.at).collect();
        let positions = self.timeline.positions(&marks)?;
        let images = self.images()?;
        let mut changes = Vec::new();
        for (change, position) in seen.all.iter().zip(positions) {
            let text = |bytes: &Option<Vec<u8>>| {
                let bytes = bytes.as_ref()?;
                Some(self.text(&watched, bytes))
            };
            let (before, after) = (text(&change.before), text(&change.after));
            // Other bits of the same bytes.
            if watched.value.bits.is_some() && before == after {
                continue;
            }
            changes.push(Change {
                position: position.to_string(),
                thread: change.thread,
                location: location_at(&images.modules, change.at.pc),
                by_event: change.by_event,
                before,
                after,
            });
        }
        Ok(Changes {
            expression: expression.trim().into(),
            of: watched.of,
            address: watched.address,
            size: watched.size,
            function,
            changes,
            complete: seen.complete,
            interrupted: seen.interrupted,
        })
    }

    /// The memory that an expression stands for here.
    fn watched(&mut self, thread: ThreadId, frame: usize, expression: &str) -> Result<Watched> {
        let text = expression.trim();
        let shown = frame + self.hidden_in(thread);
        let found = self.look(thread, |evaluator| {
            if !evaluator.choose_frame(shown) {
                return None;
            }
            let value = evaluator.evaluate(text);
            Some(value.map(|value| {
                let catalog = evaluator.view().catalog;
                let size = catalog.size(&value.of).ok().flatten();
                let of = catalog.type_name(&value.of).unwrap_or_default();
                (value, size, of)
            }))
        })?;
        let found = found.ok_or(Error::Frame(frame))?;
        let (value, size, of) = found.map_err(|problem| self.wrong(&problem, text))?;
        let (&Place::Memory(address), Some(size)) = (&value.place, size) else {
            return Err(Error::Expression(format!(
                "{text} isn't in memory here: it is a result, or in a register; ask for something that has an address"
            )));
        };
        if size == 0 || size > LARGEST {
            return Err(Error::Expression(format!(
                "{text} has {size} bytes; ask for a part of it, of at most {LARGEST}"
            )));
        }
        Ok(Watched {
            value,
            of,
            address,
            size,
        })
    }

    /// The call whose frame an address is in: its function, where it begins and ends. Moves.
    fn life(
        &mut self,
        thread: ThreadId,
        address: u64,
    ) -> Result<Option<(String, Position, Option<Position>)>> {
        let stack = self.unwound(thread)?;
        let inside = |frame: &clew_symbols::Frame| {
            let sp = frame.registers.sp();
            let low = sp.map(|sp| sp.wrapping_sub(128));
            let whole = low.zip(frame.cfa);
            !frame.inlined && whole.is_some_and(|(low, cfa)| (low..cfa).contains(&address))
        };
        let Some(frame) = stack.frames.iter().position(inside) else {
            return Ok(None);
        };
        let here = self.timeline.position()?;
        let Some(standing) = self.standing(thread, frame)? else {
            return Ok(None);
        };
        let entry = [standing.entry()];
        let came = self.search(Direction::Backward, thread, &entry, false, None)?;
        let from = match came {
            Came::Stopper(_) => self.timeline.position()?,
            _ => self.timeline.start(),
        };
        self.timeline.seek(Target::Position(here))?;
        let leaving = standing.leaving(crate::going::MOST_STOPPERS);
        let to = match self.search(Direction::Forward, thread, &leaving, false, None)? {
            Came::Stopper(_) => Some(self.timeline.position()?),
            _ => None,
        };
        Ok(Some((standing.body.name.clone(), from, to)))
    }

    fn memory(&mut self, address: u64, size: u64) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; size as usize];
        let got = self.timeline.read(address, &mut bytes)?;
        Ok((got == bytes.len()).then_some(bytes))
    }

    /// Bytes of that type as text, without what they point to: it is another time there.
    fn text(&self, watched: &Watched, bytes: &[u8]) -> String {
        let Some(images) = &self.images else {
            return self.text_in(&clew_symbols::Modules::new(), watched, bytes);
        };
        self.text_in(&images.modules, watched, bytes)
    }

    fn text_in(&self, modules: &clew_symbols::Modules, watched: &Watched, bytes: &[u8]) -> String {
        let mut captured = Captured {
            registers: Registers::new(),
            pieces: Vec::new(),
        };
        let names = &mut Bindings::new();
        let catalog = self.program.catalog();
        let mut evaluator = Evaluator::new(catalog, modules, &mut captured, names);
        let mut value = Value::made(watched.value.of.clone(), bytes);
        value.bits = watched.value.bits;
        evaluator.view().text_of(&value)
    }
}
