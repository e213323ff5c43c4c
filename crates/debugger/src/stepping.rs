//! From line to line, both ways. In: a frame and what to do. Out: it stands at another line.
//!
//! The next line is found in one search: temporary breakpoints where the function's statements start, each with the
//! condition that it is this call of the function (by its canonical frame address, so recursion is no trouble), one where
//! it returns to, and those of the calls around it for what is unwound. How often a loop on one line runs makes no
//! difference.
//!
//! Back, the line before is the last statement of this frame that was come to, and its beginning the first one of it
//! after the last statement of any other line. Lines are left backwards through a function's entry, to its caller.

use clew_recording::event::ThreadId;
use clew_symbols::Die;
use clew_symbols::types::Entry;
use clew_symbols::value::ReturnRegisters;
use clew_timeline::{Direction, Target};
use serde::{Deserialize, Serialize};

use crate::debugger::Debugger;
use crate::going::{Came, MOST_STOPPERS, Stop, Stopper};
use crate::statements::{LineOf, Standing, Statement};
use crate::values::Node;
use crate::{Error, Result};

/// Calls through pointers to functions without lines that one step passes.
const MOST_PASSED: usize = 10_000;

/// Where a step began: the frame, its function with the calls inlined into each other, and the line.
type Begun = (u64, Vec<Die>, Option<LineOf>);

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// To another line, into functions that have lines.
    Into,
    /// To another line of this frame, or of the caller.
    Over,
    /// To where this frame returns to; backwards, to where it was called.
    Out,
    /// One instruction.
    Instruction,
}

impl Debugger {
    /// Makes a step of the chosen thread, in a frame of its stack.
    pub fn step(&mut self, step: Step, direction: Direction, frame: usize) -> Result<Stop> {
        let thread = self.thread;
        // Into a call that was inlined right here: nothing moves.
        if (step, direction, frame) == (Step::Into, Direction::Forward, 0)
            && self.hidden.0 == thread
            && self.hidden.1 > 0
        {
            let left = self.hidden.1 - 1;
            self.moved();
            self.hidden = (thread, left);
            return self.stop(crate::StopReason::Step);
        }
        let begun = self.standing(thread, frame).ok().flatten();
        let begun = begun.map(|standing| (standing.cfa, standing.chain, standing.line));
        let (came, returned) = match (step, direction) {
            (Step::Instruction, _) => {
                let stop = self.timeline.step(direction, thread)?;
                self.moved();
                (came_of(stop.reason), None)
            }
            (Step::Over, Direction::Forward) => (self.next_line(thread, frame, false)?, None),
            (Step::Into, Direction::Forward) => (self.next_line(thread, frame, true)?, None),
            (Step::Over, Direction::Backward) => (self.last_line(thread, frame, false)?, None),
            (Step::Into, Direction::Backward) => (self.last_line(thread, frame, true)?, None),
            (Step::Out, Direction::Forward) => self.finish(thread, frame)?,
            (Step::Out, Direction::Backward) => (self.back_to_call(thread, frame)?, None),
        };
        if matches!(step, Step::Over | Step::Into) && matches!(came, Came::Stopper(_)) {
            self.hide(thread, step == Step::Into, begun)?;
        }
        let mut stop = self.stop(came.reason())?;
        stop.returned = returned;
        Ok(stop)
    }

    /// A step has come to where calls that were inlined begin: it stands before them, at the line that makes them. A step
    /// into the line's own call has gone into it.
    pub(crate) fn hide(
        &mut self,
        thread: ThreadId,
        into: bool,
        begun: Option<Begun>,
    ) -> Result<()> {
        self.moved();
        let pc = self.timeline.at().pc;
        let Some(standing) = self.standing(thread, 0)? else {
            return Ok(());
        };
        let here = standing.body.statements.iter();
        let begins = here.clone().find(|one| one.address == pc);
        let mut hidden = begins.map_or(0, |one| one.begins);
        if into
            && hidden > 0
            && let Some(one) = begins
            && let Some((cfa, chain, line)) = begun
        {
            let outer = one.chain.len() - hidden;
            let same = cfa == standing.cfa && one.chain[..outer] == chain[..];
            if same && one.is_at(line.as_ref(), &chain) {
                hidden -= 1;
            }
        }
        self.hidden = (thread, hidden);
        Ok(())
    }

    /// Forward to another line. Where there are no lines, out of the function. What returns into the midst of a line goes
    /// on to the next one.
    fn next_line(&mut self, thread: ThreadId, frame: usize, into: bool) -> Result<Came> {
        let (came, returned) = self.next_statement(thread, frame, into)?;
        if !returned {
            return Ok(came);
        }
        let pc = self.timeline.at().pc;
        match self.standing(thread, 0)? {
            Some(standing) if standing.body.statements.iter().all(|one| one.address != pc) => {
                Ok(self.next_statement(thread, 0, into)?.0)
            }
            _ => Ok(came),
        }
    }

    /// Forward to where another statement begins; whether that is where this frame returns to.
    fn next_statement(
        &mut self,
        thread: ThreadId,
        frame: usize,
        into: bool,
    ) -> Result<(Came, bool)> {
        let Some(standing) = self.standing(thread, frame)? else {
            return Ok((self.finish(thread, frame)?.0, false));
        };
        let elsewhere = |statement: &&Statement| {
            into && statement.is_deeper(&standing.chain)
                || !statement.is_at(standing.line.as_ref(), &standing.chain)
        };
        let mut stoppers: Vec<Stopper> = standing
            .statements(into)
            .filter(elsewhere)
            .map(|statement| standing.stopper(statement.address))
            .collect();
        let mut indirect = Vec::new();
        if into {
            let callees = self.callees(&standing)?;
            stoppers.extend(callees.bodies.iter().map(|&address| Stopper {
                address,
                condition: crate::condition::Condition::Below(standing.cfa),
            }));
            indirect = callees.indirect.clone();
        }
        let calls = stoppers.len()..stoppers.len() + indirect.len();
        stoppers.extend(indirect.iter().map(|&address| standing.stopper(address)));
        // The first of these that lead out.
        let back = standing.back.map(|_| stoppers.len());
        stoppers.extend(standing.leaving(MOST_STOPPERS.saturating_sub(stoppers.len())));
        self.fits(&standing, &stoppers)?;
        for _ in 0..MOST_PASSED {
            // A call that it stands on isn't come to.
            let pc = self.timeline.at().pc;
            let came = match indirect.contains(&pc) && self.timeline.at().thread == thread {
                true => Came::Stopper(calls.start),
                false => self.search(Direction::Forward, thread, &stoppers, true, None)?,
            };
            match came {
                Came::Stopper(n) if calls.contains(&n) => {
                    // Also a line's beginning.
                    let pc = self.timeline.at().pc;
                    let starts = stoppers[..calls.start].iter().any(|one| one.address == pc);
                    if starts && !indirect.contains(&pc) {
                        return Ok((came, false));
                    }
                    if let Some(came) = self.enter_called(thread)? {
                        return Ok((came, false));
                    }
                }
                Came::Stopper(n) => return Ok((came, Some(n) == back)),
                came => return Ok((came, false)),
            }
        }
        Ok((Came::Interrupted, false))
    }

    /// From a call through a pointer into what is called, if that has lines.
    fn enter_called(&mut self, thread: ThreadId) -> Result<Option<Came>> {
        self.timeline.step(Direction::Forward, thread)?;
        self.moved();
        let images = self.images()?;
        let pc = self.timeline.at().pc;
        let Some(body) = self.body_at(&images.modules, pc) else {
            return Ok(None);
        };
        if body == pc {
            return Ok(Some(Came::Stopper(0)));
        }
        let Some(standing) = self.standing(thread, 0)? else {
            return Ok(None);
        };
        let mut stoppers = vec![standing.stopper(body)];
        stoppers.extend(standing.leaving(MOST_STOPPERS - 1));
        let came = self.search(Direction::Forward, thread, &stoppers, true, None)?;
        Ok(Some(came))
    }

    /// Forward to where a frame returns to, and what it returned.
    fn finish(&mut self, thread: ThreadId, frame: usize) -> Result<(Came, Option<Node>)> {
        let stack = self.unwound(thread)?;
        let Some(chosen) = stack.frames.get(frame) else {
            return Err(Error::Frame(frame));
        };
        if chosen.inlined
            && let Some(standing) = self.standing(thread, frame)?
        {
            let outside = |statement: &&Statement| !statement.chain.starts_with(&standing.chain);
            let statements = standing.body.statements.iter().filter(outside);
            let mut stoppers: Vec<Stopper> = statements
                .map(|statement| standing.stopper(statement.address))
                .collect();
            stoppers.extend(standing.leaving(MOST_STOPPERS.saturating_sub(stoppers.len())));
            self.fits(&standing, &stoppers)?;
            let came = self.search(Direction::Forward, thread, &stoppers, true, None)?;
            return Ok((came, None));
        }
        let function = chosen.module.clone().zip(chosen.die);
        let stoppers = match self.standing(thread, frame)? {
            Some(standing) => standing.leaving(MOST_STOPPERS),
            None => {
                let caller = stack.frames.get(frame + 1).zip(chosen.cfa);
                let stopper = caller.map(|(caller, cfa)| Stopper {
                    address: caller.pc,
                    condition: crate::condition::Condition::Above(cfa),
                });
                stopper.into_iter().collect()
            }
        };
        if stoppers.is_empty() {
            return Err(Error::Outermost);
        }
        let came = self.search(Direction::Forward, thread, &stoppers, true, None)?;
        // Only a return brings a value back.
        let returned = match (&came, function) {
            (Came::Stopper(0), Some((module, die))) => {
                self.returned(thread, &Entry::new(&module, die))?
            }
            _ => None,
        };
        Ok((came, returned))
    }

    /// What a function has returned to the thread that stands right behind its call.
    fn returned(&mut self, thread: ThreadId, function: &Entry) -> Result<Option<Node>> {
        let Some(registers) = self.timeline.registers(thread)? else {
            return Ok(None);
        };
        let known = clew_timeline::program::symbol_registers(&registers);
        let number = clew_symbols::Registers::number;
        let general = |name| {
            number(name)
                .and_then(|number| known.get(number))
                .unwrap_or(0)
        };
        let vector = |name| {
            let value = number(name).and_then(|number| known.vector(number));
            value.unwrap_or(0) as u64
        };
        let registers = ReturnRegisters {
            rax: general("rax"),
            rdx: general("rdx"),
            xmm0: vector("xmm0"),
            xmm1: vector("xmm1"),
        };
        self.moved();
        self.returned_node(thread, function, &registers)
    }

    /// Back to the beginning of the line before; of this line, if it stands within it.
    fn last_line(&mut self, thread: ThreadId, frame: usize, into: bool) -> Result<Came> {
        if into
            && frame == 0
            && let Some(came) = self.back_into_called(thread)?
        {
            return Ok(came);
        }
        let Some(standing) = self.standing(thread, frame)? else {
            return self.back_to_call(thread, frame);
        };
        let mut meant: Vec<(Option<LineOf>, Vec<Die>)> = Vec::new();
        let mut stoppers = Vec::new();
        for statement in standing.statements(into) {
            stoppers.push(standing.stopper(statement.address));
            // Where a call begins that was inlined into this frame, the line is the one that calls.
            let level = match into {
                true => statement.chain.len() - statement.begins,
                false => statement.chain.len().min(standing.chain.len()),
            };
            let line = statement
                .lines
                .get(level.wrapping_sub(1))
                .cloned()
                .flatten();
            meant.push((line, statement.chain[..level].to_vec()));
        }
        let entry = stoppers.len();
        stoppers.push(standing.entry());
        let returns = entry + 1;
        if into {
            let callees = self.callees(&standing)?;
            let behind = callees.returns.iter();
            stoppers.extend(behind.map(|&address| standing.stopper(address)));
        }
        self.fits(&standing, &stoppers)?;
        for _ in 0..MOST_PASSED {
            match self.search(Direction::Backward, thread, &stoppers, true, None)? {
                Came::Stopper(n) if n == entry => return self.out_of_entry(thread),
                Came::Stopper(n) => {
                    // A statement may begin right behind a call.
                    if into && let Some(came) = self.back_into_called(thread)? {
                        return Ok(came);
                    }
                    if n < returns {
                        let (line, chain) = &meant[n];
                        return self.line_start(&standing, line.as_ref(), chain);
                    }
                }
                came => return Ok(came),
            }
        }
        Ok(Came::Interrupted)
    }

    /// If the thread has just come back from a function with lines: to the beginning of that one's last line.
    /// Otherwise it stays where it is.
    fn back_into_called(&mut self, thread: ThreadId) -> Result<Option<Came>> {
        let here = self.timeline.position()?;
        let sp = self.sp(thread)?;
        let stop = self.timeline.step(Direction::Backward, thread)?;
        self.moved();
        // A return takes its address from the stack: the stack pointer was lower.
        let came_back = self.sp(thread)? < sp && self.is_return(stop.pc)?;
        if came_back && let Some(standing) = self.standing(thread, 0)? {
            let (line, chain) = (standing.line.clone(), standing.chain.clone());
            return self.line_start(&standing, line.as_ref(), &chain).map(Some);
        }
        self.timeline.seek(Target::Position(here))?;
        Ok(None)
    }

    fn sp(&mut self, thread: ThreadId) -> Result<u64> {
        let registers = self.timeline.registers(thread)?;
        let registers = registers.ok_or(Error::Thread(thread))?;
        let known = clew_timeline::program::symbol_registers(&registers);
        Ok(known.sp().unwrap_or(0))
    }

    pub(crate) fn is_return(&mut self, pc: u64) -> Result<bool> {
        let mut code = [0; 15];
        let got = self.timeline.read(pc, &mut code)?;
        let mut decoder =
            iced_x86::Decoder::with_ip(64, &code[..got], pc, iced_x86::DecoderOptions::NONE);
        let flow = decoder.decode().flow_control();
        Ok(flow == iced_x86::FlowControl::Return)
    }

    /// It stands within a line of a frame: back to where that was come to.
    fn line_start(
        &mut self,
        standing: &Standing,
        line: Option<&LineOf>,
        chain: &[Die],
    ) -> Result<Came> {
        let thread = standing.thread;
        let here = self.timeline.position()?;
        let is_line = |statement: &&Statement| statement.is_at(line, chain);
        let making = standing.body.entry..standing.body.start;
        let others = standing.body.statements.iter().filter(|statement| {
            let around = chain.starts_with(&statement.chain) || statement.is_deeper(chain);
            around && !is_line(statement) && !making.contains(&statement.address)
        });
        let mut stoppers: Vec<Stopper> = others
            .map(|statement| standing.stopper(statement.address))
            .collect();
        stoppers.push(standing.entry());
        match self.search(Direction::Backward, thread, &stoppers, true, None)? {
            Came::Stopper(_) | Came::Start => {}
            // A breakpoint within the line.
            came => return Ok(came),
        }
        let starts: Vec<Stopper> = standing
            .body
            .statements
            .iter()
            .filter(is_line)
            .map(|statement| standing.stopper(statement.address))
            .collect();
        let came = self.search(Direction::Forward, thread, &starts, false, Some(here))?;
        // A line may have no beginning before that place.
        if !matches!(came, Came::Stopper(_)) {
            self.timeline.seek(Target::Position(here))?;
        }
        Ok(Came::Stopper(0))
    }

    /// It stands on the first instruction of a function: back to the line that called it.
    fn out_of_entry(&mut self, thread: ThreadId) -> Result<Came> {
        let before = self.timeline.position()?;
        self.before_entry(thread)?;
        if self.timeline.position()? == before {
            return Ok(Came::Start);
        }
        let standing = self.standing(thread, 0)?;
        match standing {
            Some(standing) => {
                let (line, chain) = (standing.line.clone(), standing.chain.clone());
                self.line_start(&standing, line.as_ref(), &chain)
            }
            None => Ok(Came::Stopper(0)),
        }
    }

    /// One instruction back, over what only leads from a call to the function: linkage tables, the loader that finds it.
    fn before_entry(&mut self, thread: ThreadId) -> Result<()> {
        let entered = self.timeline.position()?;
        let sp = self.sp(thread)?;
        self.timeline.step(Direction::Backward, thread)?;
        self.moved();
        if self.is_call(self.timeline.at().pc)? {
            return Ok(());
        }
        // A jump: what was called with this very return address is where it began.
        let images = self.images()?;
        let mut bytes = [0; 8];
        let got = self.timeline.read(sp, &mut bytes)?;
        let back = u64::from_le_bytes(bytes);
        let call = (got == 8)
            .then(|| self.call_before(back))
            .transpose()?
            .flatten();
        if let Some(call) = call
            && images.modules.find(call).is_some()
        {
            let stoppers = [Stopper {
                address: call,
                condition: crate::condition::Condition::Above(sp + 8),
            }];
            let came = self.search(Direction::Backward, thread, &stoppers, false, None)?;
            if matches!(came, Came::Stopper(_)) && self.sp(thread)? == sp + 8 {
                return Ok(());
            }
            self.timeline.seek(Target::Position(entered))?;
            self.timeline.step(Direction::Backward, thread)?;
        }
        Ok(())
    }

    fn is_call(&mut self, pc: u64) -> Result<bool> {
        let mut code = [0; 15];
        let got = self.timeline.read(pc, &mut code)?;
        let mut decoder =
            iced_x86::Decoder::with_ip(64, &code[..got], pc, iced_x86::DecoderOptions::NONE);
        Ok(matches!(
            decoder.decode().flow_control(),
            iced_x86::FlowControl::Call | iced_x86::FlowControl::IndirectCall
        ))
    }

    /// The call that returns to an address: the function around it is read from its beginning.
    fn call_before(&mut self, back: u64) -> Result<Option<u64>> {
        let images = self.images()?;
        let Some(image) = images.modules.find(back.wrapping_sub(1)) else {
            return Ok(None);
        };
        let function = image
            .module
            .function_at(image.local(back.wrapping_sub(1)))?;
        let local = image.local(back);
        let part = function.and_then(|function| {
            let mut ranges = function.ranges.into_iter();
            ranges.find(|range| range.start < local && local <= range.end)
        });
        let Some(part) = part else {
            return Ok(None);
        };
        let start = part.start.wrapping_add(image.bias);
        let mut code = vec![0; (back - start).min(4 << 20) as usize];
        let got = self.timeline.read(start, &mut code)?;
        let mut decoder =
            iced_x86::Decoder::with_ip(64, &code[..got], start, iced_x86::DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.next_ip() == back {
                return Ok(Some(instruction.ip()));
            }
        }
        Ok(None)
    }

    /// Back to the call of a frame's function.
    fn back_to_call(&mut self, thread: ThreadId, frame: usize) -> Result<Came> {
        let stack = self.unwound(thread)?;
        let Some(chosen) = stack.frames.get(frame) else {
            return Err(Error::Frame(frame));
        };
        let inlined = chosen.inlined;
        let Some(standing) = self.standing(thread, frame)? else {
            return self.back_to_unknown_call(thread, &stack, frame);
        };
        if inlined {
            let outside = |statement: &&Statement| !statement.chain.starts_with(&standing.chain);
            let statements = standing.body.statements.iter().filter(outside);
            let mut stoppers: Vec<Stopper> = statements
                .map(|statement| standing.stopper(statement.address))
                .collect();
            stoppers.push(standing.entry());
            self.fits(&standing, &stoppers)?;
            return self.search(Direction::Backward, thread, &stoppers, true, None);
        }
        if self.timeline.at().pc != standing.body.entry || frame > 0 {
            let entry = [standing.entry()];
            match self.search(Direction::Backward, thread, &entry, true, None)? {
                Came::Stopper(_) => {}
                came => return Ok(came),
            }
        }
        let before = self.timeline.position()?;
        self.before_entry(thread)?;
        match self.timeline.position()? == before {
            true => Ok(Came::Start),
            false => Ok(Came::Stopper(0)),
        }
    }

    /// The same for a function without lines: back to the call that returns to the frame's caller.
    fn back_to_unknown_call(
        &mut self,
        thread: ThreadId,
        stack: &clew_symbols::Stack,
        frame: usize,
    ) -> Result<Came> {
        let real = stack.frames[frame].cfa.zip(stack.frames.get(frame + 1));
        let Some((cfa, caller)) = real else {
            return Err(Error::Outermost);
        };
        let Some(address) = self.call_before(caller.pc)? else {
            return Err(Error::Outermost);
        };
        let stoppers = [Stopper {
            address,
            condition: crate::condition::Condition::Above(cfa),
        }];
        self.search(Direction::Backward, thread, &stoppers, true, None)
    }

    pub(crate) fn fits(&self, standing: &Standing, stoppers: &[Stopper]) -> Result<()> {
        match stoppers.len() > MOST_STOPPERS {
            true => Err(Error::Statements {
                function: standing.body.name.clone(),
                count: stoppers.len(),
            }),
            false => Ok(()),
        }
    }
}

fn came_of(reason: clew_timeline::Reason) -> Came {
    use clew_timeline::Reason;
    match reason {
        Reason::Start => Came::Start,
        Reason::End(_) => Came::End,
        Reason::Interrupted => Came::Interrupted,
        _ => Came::Stopper(0),
    }
}
