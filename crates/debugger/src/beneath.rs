//! What analyses of whole recordings stand on. In: a debugger. Out: its recording and timeline, calls of functions by the
//! linker's names, where a call in progress began.

use clew_recording::event::{Event, ThreadId};
use clew_recording::reader::Recording;
use clew_symbols::Modules;
use clew_timeline::program::Program;
use clew_timeline::{CallSeen, Direction, FunctionEntry, Position, Target, Timeline};

use crate::breakpoints::in_process;
use crate::calls::at_symbols;
use crate::debugger::{Debugger, Location, location_at};
use crate::going::Came;
use crate::{Error, Result};

/// Calls of several functions.
pub struct SeenCalls {
    /// In order; [`CallSeen::function`] is the number of the name that was asked for.
    pub calls: Vec<CallSeen>,
    /// There are no more.
    pub complete: bool,
}

impl Debugger {
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Who moves it stands elsewhere: values that were told before are stale.
    pub fn timeline(&mut self) -> &mut Timeline {
        self.moved();
        &mut self.timeline
    }

    pub fn timeline_and_program(&mut self) -> (&mut Timeline, &mut Program) {
        self.moved();
        (&mut self.timeline, &mut self.program)
    }

    /// Goes to a position.
    pub fn stand_at(&mut self, position: Position) -> Result<()> {
        self.timeline.seek(Target::Position(position))?;
        self.moved();
        self.thread = self.timeline.at().thread;
        Ok(())
    }

    /// Goes to the end.
    pub fn stand_at_end(&mut self) -> Result<Position> {
        self.timeline.seek(Target::End)?;
        self.moved();
        self.thread = self.timeline.at().thread;
        Ok(self.timeline.position()?)
    }

    /// Programs and libraries of the whole life.
    pub fn all_modules(&mut self) -> Result<Modules> {
        Ok(self.images()?.modules.clone())
    }

    /// What is at an address, whenever it was mapped.
    pub fn location_ever(&mut self, address: u64) -> Result<Location> {
        let images = self.images()?;
        Ok(location_at(&images.modules, address))
    }

    /// A stack with all that unwinding knows.
    pub fn frames(&mut self, thread: ThreadId) -> Result<clew_symbols::Stack> {
        self.unwound(thread)
    }

    /// All calls of functions with exactly these linker's names (or Rust paths), at most so many, without the memory that their arguments
    /// are in: registers alone, as they were at the first instruction.
    pub fn calls_of(&mut self, names: &[&str], most: u64) -> Result<SeenCalls> {
        let images = self.images()?;
        let mut entries: Vec<FunctionEntry> = Vec::new();
        let mut owners = Vec::new();
        for (n, name) in names.iter().enumerate() {
            let mut found = at_symbols(&images.modules, name);
            // A Rust function's linker's name has a hash in it: it is looked for by its path.
            if found.is_empty() && (name.contains("::") || name.starts_with("rust_")) {
                for (image, function) in images.modules.functions_named(name)? {
                    let pc = in_process(&images.modules, &image, function.entry);
                    found.extend(pc.map(|pc| FunctionEntry {
                        pc,
                        loops: false,
                        known: 0,
                        register: 4,
                        offset: 0,
                    }));
                }
            }
            for entry in found {
                if entries.iter().all(|other| other.pc != entry.pc) {
                    // Nobody stands at 0, so that nothing is kept but registers.
                    entries.push(FunctionEntry { known: 0, ..entry });
                    owners.push(n as u32);
                }
            }
        }
        if entries.is_empty() {
            return Ok(SeenCalls {
                calls: Vec::new(),
                complete: true,
            });
        }
        let start = self.timeline.start();
        let seen = self.timeline.calls(&entries, start, None, most)?;
        let calls = seen.all.into_iter().filter_map(|mut call| {
            call.function = *owners.get(call.function as usize)?;
            Some(call)
        });
        Ok(SeenCalls {
            calls: calls.collect(),
            complete: seen.complete,
        })
    }

    /// Where the call began that a frame of this thread is in; none if there is no debugging information. It stays.
    pub fn began(&mut self, thread: ThreadId, frame: usize) -> Result<Option<Position>> {
        let here = self.timeline.position()?;
        let Some(standing) = self.standing(thread, frame)? else {
            return Ok(None);
        };
        let entry = [standing.entry()];
        let came = self.search(Direction::Backward, thread, &entry, false, None);
        let began = match came {
            Ok(Came::Stopper(_)) => Some(self.timeline.position()?),
            Ok(_) => None,
            Err(Error::Timeline(error)) => return Err(error.into()),
            Err(_) => None,
        };
        self.stand_at(here)?;
        Ok(began)
    }

    /// Tells each event of the log with its number and the thread that ran, until somebody has enough.
    pub fn events(&self, each: impl FnMut(&Event<'_>, u64, ThreadId) -> bool) -> Result<()> {
        self.read_log(each)
    }
}
