//! What-ifs. In: changes to a copy of the program, and the wish to run on. Out: what came of it. The timeline
//! and its recording know nothing of it.

use std::time::Duration;

use clew_engine::context::{R8, R9, RAX, RCX, RDI, RDX, RSI, RSP};
use clew_engine::replay::worker::protocol::{Command, Excursion as Report, LONGEST_READ, Reply};
use clew_recording::event::ThreadId;

use crate::timeline::{Timeline, read, registers};
use crate::worker::{Worker, unexpected};
use crate::{Error, ExcursionEnd, Registers, Result, Stops};

/// A what-if: a copy of the program that goes its own way. Dropping it ends it.
pub struct Excursion {
    worker: Worker,
    thread: ThreadId,
    /// Counts the sets of stops it was given.
    stops: u64,
    /// What called functions have printed.
    output: Vec<u8>,
}

/// What came of running an excursion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub end: ExcursionEnd,
    pub pc: u64,
    /// What it wrote to stdout and stderr.
    pub output: Vec<u8>,
}

/// Why a call in an excursion has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// It would have been killed.
    Signal {
        signo: i32,
        addr: u64,
    },
    Exited,
    /// It waits for what can't happen, or ran for too long.
    Endless,
}

/// Where a called function returns to. Nothing is there, nor can be: it lies between the areas for
/// mappings, and below the engine's own.
const NOWHERE: u64 = 0x6c65_7700_0ca0;
/// Below the stack pointer, a function may have data that it didn't make room for.
const RED_ZONE: u64 = 128;
/// In the order of the C ABI.
const ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, RCX, R8, R9];
const RIP: usize = 16;
const RFLAGS: usize = 17;
/// Direction and trap flag are clear in called functions.
const DIRECTION: u64 = 1 << 10;
const TRAP: u64 = 1 << 8;
/// An excursion that isn't finished by ticks is by time: it may be in a single endless instruction.
const STUCK: Duration = Duration::from_secs(60);

impl Timeline {
    /// A copy of the program as it is here, to be changed and thrown away.
    pub fn excursion(&mut self) -> Result<Excursion> {
        let thread = self.at.thread;
        Ok(Excursion {
            worker: self.worker()?.fork()?,
            thread,
            stops: 1 << 63,
            output: Vec::new(),
        })
    }
}

impl Excursion {
    /// The thread that runs in it: the others stand still.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    pub fn registers(&mut self, thread: ThreadId) -> Result<Option<Registers>> {
        registers(self.worker.ask(&Command::Registers { thread })?)
    }

    pub fn set_registers(&mut self, thread: ThreadId, new: &Registers) -> Result<()> {
        let command = Command::SetRegisters {
            thread,
            registers: Box::new(new.clone()),
        };
        self.done(&command)
    }

    pub fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<usize> {
        read(&mut self.worker, addr, into)
    }

    pub fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<()> {
        let mut at = addr;
        for piece in bytes.chunks(LONGEST_READ) {
            let command = Command::Write {
                addr: at,
                bytes: piece.to_vec(),
            };
            self.done(&command)?;
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    fn done(&mut self, command: &Command) -> Result<()> {
        match self.worker.ask(command)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Runs on until one of these stops, a signal, the end of `ticks`, or a wait that can't end.
    pub fn run(&mut self, stops: Stops, ticks: u64) -> Result<Ran> {
        self.worker.pool().begin();
        self.stops += 1;
        self.worker.set_stops(self.stops, &stops)?;
        self.go(ticks)
    }

    fn go(&mut self, ticks: u64) -> Result<Ran> {
        self.worker.send(&Command::Run { ticks })?;
        match self.worker.journey_within(STUCK)? {
            Reply::Excursion(Report {
                why, pc, output, ..
            }) => Ok(Ran {
                end: why,
                pc,
                output,
            }),
            other => Err(unexpected(other)),
        }
    }

    /// What called functions have printed since this was last asked.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Calls a function with integer arguments in the current thread, as the C ABI has it; registers are
    /// put back afterwards. `ticks`: how long it may take. Returns rax, or why there is none.
    pub fn call(
        &mut self,
        function: u64,
        arguments: &[u64],
        ticks: u64,
    ) -> Result<std::result::Result<u64, Undefined>> {
        let returned = self.call_registers(function, arguments, ticks)?;
        Ok(returned.map(|registers| registers.words[RAX]))
    }

    /// The same with all registers as the function leaves them: a floating-point result is in xmm0.
    pub fn call_registers(
        &mut self,
        function: u64,
        arguments: &[u64],
        ticks: u64,
    ) -> Result<std::result::Result<Registers, Undefined>> {
        if arguments.len() > ARGUMENTS.len() {
            return Err(Error::Refused(format!(
                "a call with {} arguments: at most {} can be passed",
                arguments.len(),
                ARGUMENTS.len()
            )));
        }
        self.worker.pool().begin();
        let thread = self.thread;
        let Some(before) = self.registers(thread)? else {
            return Err(Error::Refused("no thread runs here that could call".into()));
        };
        let mut during = before.clone();
        let words = &mut during.words;
        // The return address lies where a call would have put it.
        words[RSP] = (words[RSP].wrapping_sub(RED_ZONE) & !15).wrapping_sub(8);
        let stack = words[RSP];
        for (&register, &value) in ARGUMENTS.iter().zip(arguments) {
            words[register] = value;
        }
        // No vector registers hold arguments.
        words[RAX] = 0;
        words[RIP] = function;
        words[RFLAGS] &= !(DIRECTION | TRAP);
        if self.write(stack, &NOWHERE.to_le_bytes()).is_err() {
            return Ok(Err(Undefined::Signal {
                signo: 11,
                addr: stack,
            }));
        }
        self.set_registers(thread, &during)?;
        self.stops += 1;
        self.worker.set_stops(self.stops, &Stops::default())?;
        let mut ran = self.go(ticks)?;
        self.output.append(&mut ran.output);
        let after = self.registers(thread)?;
        let result = match ran.end {
            ExcursionEnd::Signal { .. } if ran.pc == NOWHERE => {
                let after = after.ok_or(Error::Lost)?;
                // Popped by the return; a jump there isn't one.
                match after.words[RSP] == stack.wrapping_add(8) {
                    true => Ok(after),
                    false => Err(Undefined::Signal {
                        signo: 11,
                        addr: NOWHERE,
                    }),
                }
            }
            ExcursionEnd::Signal { signo, addr } => Err(Undefined::Signal { signo, addr }),
            ExcursionEnd::Exited => Err(Undefined::Exited),
            ExcursionEnd::Waits { .. } | ExcursionEnd::Ticks => Err(Undefined::Endless),
            ExcursionEnd::Interrupted => return Err(Error::Interrupted),
            ExcursionEnd::Break | ExcursionEnd::Watch { .. } => return Err(Error::Lost),
        };
        self.set_registers(thread, &before)?;
        Ok(result)
    }
}
