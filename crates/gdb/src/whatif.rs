//! What-ifs: what gdb changes, it changes in a copy of the program. In: writes, and calls of functions. Out:
//! an excursion that registers and memory are read from until the program moves.
//!
//! Two kinds of going on are told apart. If gdb has set the pc (it calls a function, or jumps) the copy
//! runs. Any other step or continue follows the recording: the copy is dropped, and gdb's console says so.

use clew_calls::names;
use clew_recording::event::ThreadId;
use clew_timeline::{Excursion, ExcursionEnd, Registers};

use crate::points::Kind;
use crate::registers::{RIP, RSP};
use crate::report::{self, Report};
use crate::resume::Resume;
use crate::session::Session;
use crate::{Result, signals};

/// More than anyone waits for; Ctrl-C ends it.
const FOREVER: u64 = 1 << 62;

pub struct WhatIf {
    excursion: Excursion,
    /// The user wants it to run on (`clew excursion`).
    free: bool,
    /// Something other than registers that were put back was changed.
    changed: bool,
    /// It has run.
    ran: bool,
}

impl Session<'_> {
    pub(crate) fn registers(&mut self, thread: ThreadId) -> Result<Option<Registers>> {
        Ok(match &mut self.whatif {
            Some(whatif) => whatif.excursion.registers(thread)?,
            None => self.timeline.registers(thread)?,
        })
    }

    pub(crate) fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<usize> {
        Ok(match &mut self.whatif {
            Some(whatif) => whatif.excursion.read(addr, into)?,
            None => self.timeline.read(addr, into)?,
        })
    }

    /// All of it or nothing.
    pub(crate) fn read_exactly(&mut self, addr: u64, into: &mut [u8]) -> bool {
        self.read(addr, into).is_ok_and(|read| read == into.len())
    }

    pub(crate) fn set_registers(&mut self, thread: ThreadId, values: &Registers) -> Result<()> {
        let whatif = self.begin_whatif()?;
        whatif.excursion.set_registers(thread, values)?;
        Ok(())
    }

    pub(crate) fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<()> {
        let whatif = self.begin_whatif()?;
        whatif.excursion.write(addr, bytes)?;
        whatif.changed = true;
        Ok(())
    }

    pub(crate) fn begin_whatif(&mut self) -> Result<&mut WhatIf> {
        if self.whatif.is_none() {
            self.whatif = Some(WhatIf {
                excursion: self.timeline.excursion()?,
                free: false,
                changed: false,
                ran: false,
            });
        }
        Ok(self.whatif.as_mut().expect("it was made"))
    }

    /// From here on `continue` runs the copy.
    pub(crate) fn free_whatif(&mut self) -> Result<()> {
        self.begin_whatif()?.free = true;
        Ok(())
    }

    /// Whether going on means the copy.
    pub(crate) fn goes_on_in_whatif(&mut self) -> Result<bool> {
        let thread = self.timeline.at().thread;
        let Some(whatif) = &mut self.whatif else {
            return Ok(false);
        };
        if whatif.free {
            return Ok(true);
        }
        let there = whatif.excursion.registers(thread)?;
        let here = self.timeline.registers(thread)?;
        let place = |registers: Option<Registers>| registers.map(|r| (r.words[RIP], r.words[RSP]));
        Ok(place(there) != place(here))
    }

    /// Back to what is recorded. Says so if something is lost.
    pub(crate) fn drop_whatif(&mut self) -> Result<()> {
        let Some(whatif) = self.whatif.take() else {
            return Ok(());
        };
        if whatif.changed || whatif.free {
            self.say("[clew: the what-if is over; changes are dropped, the recording goes on]\n")?;
        }
        Ok(())
    }

    /// Runs the copy.
    pub(crate) fn run_whatif(&mut self, how: Resume) -> Result<Report> {
        let thread = self.timeline.at().thread;
        let tid = self.tid_of(thread)?;
        let going = match how {
            Resume::Continue => self.meant()?,
            Resume::Step(thread) | Resume::Range { thread, .. } => thread,
        };
        if going != thread {
            self.say(&format!(
                "[clew: a what-if runs only the thread that runs at this place, {tid}]\n"
            ))?;
            let tid = self.tid_of(going)?;
            return Ok(Report::plain(report::NOTHING, tid));
        }
        let mut stops = self.points.stops(Default::default());
        let stepping = match how {
            Resume::Continue => None,
            Resume::Step(_) | Resume::Range { .. } => Some(self.successors(thread)?),
        };
        if let Some(next) = &stepping {
            for &addr in next {
                stops.breaks.retain(|b| b.addr != addr);
                stops.breaks.push(clew_timeline::Break {
                    addr,
                    thread: None,
                    conditions: Vec::new(),
                });
            }
        }
        let Some(whatif) = &mut self.whatif else {
            return Ok(Report::plain(report::TRAP, tid));
        };
        let first = !whatif.ran && !whatif.free;
        whatif.ran = true;
        let ran = whatif.excursion.run(stops, FOREVER)?;
        self.mappings = None;
        if first {
            self.say("[clew: in a copy; when the program moves on, it is as it was recorded]\n")?;
        }
        if !ran.output.is_empty() {
            let output = String::from_utf8_lossy(&ran.output).into_owned();
            self.say(&output)?;
        }
        let report = match ran.end {
            ExcursionEnd::Break if stepping.is_some_and(|next| next.contains(&ran.pc)) => {
                Report::plain(report::TRAP, tid)
            }
            ExcursionEnd::Break => {
                let kind = self.points.kind_at(ran.pc);
                Report::with(format!("{}:;", kind.word()), tid)
            }
            ExcursionEnd::Watch { watch } => match self.points.touched(watch as usize, 0) {
                Some((kind, addr)) => Report::with(format!("{}:{addr:x};", kind.word()), tid),
                None => Report::plain(report::TRAP, tid),
            },
            // gdb lets functions return to a breakpoint on the stack, which isn't executable.
            ExcursionEnd::Signal { .. } if self.points.has_break(ran.pc) => {
                Report::with(format!("{}:;", Kind::Soft.word()), tid)
            }
            ExcursionEnd::Signal { signo, .. } => Report::plain(signals::to_gdb(signo), tid),
            ExcursionEnd::Interrupted => Report::plain(report::INTERRUPTED, tid),
            ExcursionEnd::Exited => {
                self.say("[clew: in this what-if the program ends here]\n")?;
                Report::plain(report::NOTHING, tid)
            }
            ExcursionEnd::Waits { nr } => {
                let call = names::call(nr);
                self.say(&format!(
                    "[clew: in this what-if the thread waits for ever (in {call}): nothing else runs]\n"
                ))?;
                Report::plain(report::NOTHING, tid)
            }
            ExcursionEnd::Ticks => Report::plain(report::INTERRUPTED, tid),
        };
        Ok(report)
    }
}
