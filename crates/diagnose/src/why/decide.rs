//! The decision that led somewhere. In: a place in a call of a function. Out: the last conditional jump of that function
//! before it, and the comparison that it went by: which values it compared.

use clew_engine::cache::accesses::Access;
use clew_recording::event::ThreadId;
use clew_slice::origin::Value;
use clew_slice::walk::{Executed, Go, Intervals, Place, Run, Visitor, back};
use clew_timeline::Position;
use iced_x86::{Instruction, OpKind};
use std::ops::Range;

use super::Asking;
use super::trail::{general, register_value};
use crate::{Result, sliced};

/// So far back it is looked, in steps of the timeline's work.
const STRETCHES: [u64; 3] = [2_000, 100_000, 2_000_000];

/// A comparison, and where it is.
pub struct Decision {
    pub position: Position,
    pub thread: ThreadId,
    pub ins: Instruction,
    /// Values that were compared, where they are in registers or memory, and what they were.
    pub compared: Vec<(Value, u64)>,
    /// And the constant, if there is one.
    pub constant: Option<i64>,
}

/// What a jump went by: where, which instruction, and what it touched.
type Compared = (Place, Instruction, Vec<(u64, u64)>);

struct Looking {
    thread: u64,
    code: Code,
    /// A jump was met; what it went by is older.
    jumped: bool,
    found: Option<Compared>,
    over: bool,
}

impl Looking {
    fn look(&mut self, ins: &Instruction, place: Place, accesses: &[Access]) -> Go {
        if !self.code.has(ins.ip()) {
            return Go::On;
        }
        if !self.jumped {
            self.jumped = ins.is_jcc_short_or_near();
        } else if ins.rflags_modified() != 0 {
            let accesses = accesses.iter().map(|access| (access.addr, access.len));
            self.found = Some((place, *ins, accesses.collect()));
            return Go::Stop;
        }
        if ins.ip() == self.code.entry {
            self.over = true;
            return Go::Stop;
        }
        Go::On
    }
}

impl Visitor for Looking {
    fn run(&mut self, run: &Run<'_>) -> clew_slice::Result<Go> {
        if run.thread != self.thread {
            return Ok(Go::On);
        }
        let mut accesses = Vec::new();
        for n in (0..run.len()).rev() {
            if !self.code.has(run.instruction(n).ip()) {
                continue;
            }
            run.accesses(n, &mut accesses)?;
            if self.look(run.instruction(n), run.place(n), &accesses) == Go::Stop {
                return Ok(Go::Stop);
            }
        }
        Ok(Go::On)
    }

    fn step(&mut self, executed: &Executed<'_>) -> clew_slice::Result<Go> {
        if executed.thread != self.thread {
            return Ok(Go::On);
        }
        Ok(self.look(executed.ins, executed.place.place(), executed.accesses))
    }

    fn event(&mut self, _: u64, _: u64, _: u64) -> clew_slice::Result<Go> {
        Ok(Go::On)
    }
}

impl Asking<'_> {
    /// The last decision of the function that a frame is in, before where the scene stands. It moves there.
    pub fn decision(&mut self, thread: ThreadId, frame: usize) -> Result<Option<Decision>> {
        let stack = self.scene.stack(thread)?;
        let Some(code) = stack.frames.get(frame).and_then(Code::of) else {
            return Ok(None);
        };
        self.comparison(thread, &code, false)
    }

    /// The comparison before here, in this code; with `flags`, the one whose flags are used right here.
    pub fn comparison(
        &mut self,
        thread: ThreadId,
        code: &Code,
        flags: bool,
    ) -> Result<Option<Decision>> {
        let to = self.scene.debugger.timeline().at();
        for work in STRETCHES {
            let trace = self.scene.debugger.timeline().trace_back(&to, work)?;
            let Some(trace) = trace else {
                return Ok(None);
            };
            let mut looking = Looking {
                thread: thread.into(),
                code: code.clone(),
                jumped: flags,
                found: None,
                over: false,
            };
            let mut intervals = Intervals::default();
            let ticks = self.ticks_of_events(trace.start.event, trace.end.event)?;
            let ticks_of = |number: u64| {
                // The log counts events from 1, traces those before.
                let index = (number + 1).checked_sub(trace.start.event);
                let known = index.and_then(|index| ticks.get(index as usize));
                known.copied().unwrap_or(0)
            };
            back(&trace, &mut intervals, &ticks_of, &mut looking).map_err(sliced)?;
            if let Some((place, ins, accesses)) = looking.found {
                let Some(position) = intervals.position(place) else {
                    return Ok(None);
                };
                return self.compared(position, thread, ins, &accesses).map(Some);
            }
            if looking.over {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// How many ticks after the event before it each event of a stretch was due.
    fn ticks_of_events(&mut self, from: u64, to: u64) -> Result<Vec<u64>> {
        let mut ticks = vec![0; (to.saturating_sub(from) + 2) as usize];
        self.scene.debugger.events(|event, number, _| {
            if number >= from
                && let Some(place) = ticks.get_mut((number - from) as usize)
            {
                *place = event.place().ticks;
            }
            number <= to
        })?;
        Ok(ticks)
    }

    /// What an instruction compares.
    fn compared(
        &mut self,
        position: Position,
        thread: ThreadId,
        ins: Instruction,
        accesses: &[(u64, u64)],
    ) -> Result<Decision> {
        self.scene.go(position)?;
        let registers = self.scene.registers(thread)?;
        let mut compared: Vec<(Value, u64)> = Vec::new();
        let mut constant = None;
        for operand in 0..ins.op_count() {
            match ins.op_kind(operand) {
                OpKind::Register => {
                    let register = ins.op_register(operand);
                    let value = register_value(thread, register);
                    let known = compared.iter().any(|(other, _)| *other == value);
                    if let Some(number) = general(&registers, register)
                        && !known
                    {
                        compared.push((value, number));
                    }
                }
                OpKind::Memory => {
                    if let Some(&(addr, len)) = accesses.first()
                        && let Some(number) = self.scene.number(addr, len)?
                    {
                        compared.push((Value::Memory { addr, len }, number));
                    }
                }
                _ => {
                    if let Ok(number) = ins.try_immediate(operand) {
                        constant = Some(number as i64);
                    }
                }
            }
        }
        Ok(Decision {
            position,
            thread,
            ins,
            compared,
            constant,
        })
    }
}

/// The code of a function.
#[derive(Clone, Debug)]
pub struct Code {
    pub entry: u64,
    ranges: Vec<Range<u64>>,
}

impl Code {
    /// Of the function that a frame is in.
    pub fn of(frame: &clew_symbols::Frame) -> Option<Code> {
        let module = frame.module.as_ref()?;
        let local = frame.lookup.wrapping_sub(frame.bias);
        let function = module.function_at(local).ok()??;
        let moved = |address: u64| address.wrapping_add(frame.bias);
        let ranges = function.ranges.iter();
        Some(Code {
            entry: moved(function.entry),
            ranges: ranges
                .map(|range| moved(range.start)..moved(range.end))
                .collect(),
        })
    }

    pub fn has(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }
}
