//! Back along a value. In: a register or memory at a position. Out: all moves and computations that it went through, newest
//! first, also where it was made of several values: there the one that is followed is chosen, and that is told.

use clew_slice::EventKind;
use clew_slice::origin::{Ending, Source, Step, Value};
use clew_timeline::{Position, Registers};
use iced_x86::Register;

use super::Asking;
use crate::Result;
use crate::scene::Site;

/// A value that is made of several again and again isn't followed any further.
const MOST_CHOICES: usize = 40;
/// So many pieces of memory are kept that values were read from: the last steps matter.
const MOST_FOLLOWED: usize = 256;
/// Addresses below are as good as zero.
pub const NULL_PAGE: u64 = 4096;

/// What is followed where a value is made of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// An address into memory that is there: whose pointer is it?
    Pointer,
    /// What isn't such an address: what made it wrong?
    Number,
    /// The zero that made an address of the null page.
    Null,
    /// Nothing.
    Stop,
}

/// The way of a value.
pub struct Trail {
    /// Newest first.
    pub steps: Vec<Step>,
    pub end: TrailEnd,
    /// So often one of several values was chosen: from there on it is a guess.
    pub choices: usize,
    /// The step from which on it is one.
    pub certain: usize,
}

pub enum TrailEnd {
    Constant,
    Computed,
    Beginning,
    Event {
        position: Position,
        thread: u32,
        kind: EventKind,
    },
    Cut,
}

impl Trail {
    /// The newest step that isn't a mere move.
    pub fn computing(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| !step.moved)
    }
}

/// Another value that could have been followed, and where.
struct Other {
    value: Value,
    position: Position,
    /// So many steps had been made.
    steps: usize,
}

impl Asking<'_> {
    /// Follows a value back from where the scene stands. The scene moves.
    pub fn trail(&mut self, value: &Value, choice: Choice) -> Result<Trail> {
        let mut trail = Trail {
            steps: Vec::new(),
            end: TrailEnd::Cut,
            choices: 0,
            certain: usize::MAX,
        };
        let mut value = value.clone();
        let mut others: Vec<Other> = Vec::new();
        loop {
            let chain = self.scene.origin(&value)?;
            self.follow(&chain.steps);
            trail.steps.extend(chain.steps);
            trail.end = match chain.ending {
                Ending::Constant => TrailEnd::Constant,
                Ending::Computed => TrailEnd::Computed,
                Ending::Beginning => TrailEnd::Beginning,
                Ending::Interrupted => TrailEnd::Cut,
                Ending::Event {
                    position,
                    thread,
                    kind,
                } => TrailEnd::Event {
                    position,
                    thread,
                    kind,
                },
            };
            let last = trail.steps.last().cloned();
            let computed = matches!(trail.end, TrailEnd::Computed);
            if choice == Choice::Stop || trail.choices >= MOST_CHOICES {
                return Ok(trail);
            }
            let Some(step) = last else {
                return Ok(trail);
            };
            trail.choices += 1;
            if !computed {
                // A constant of a library (a base, a mask) is no answer as long as there is another way.
                let constant = matches!(trail.end, TrailEnd::Constant) && !self.is_own(&step);
                let Some(other) = others.pop().filter(|_| constant) else {
                    trail.choices -= 1;
                    return Ok(trail);
                };
                trail.steps.truncate(other.steps);
                self.scene.go(other.position)?;
                value = other.value;
                continue;
            }
            self.scene.go(step.position)?;
            let mut chosen = self.chosen(&step, choice)?;
            if chosen.is_empty() {
                trail.choices -= 1;
                return Ok(trail);
            }
            trail.certain = trail.certain.min(trail.steps.len());
            value = chosen.remove(0);
            others.extend(chosen.into_iter().rev().map(|value| Other {
                value,
                position: step.position,
                steps: trail.steps.len(),
            }));
        }
    }

    /// Keeps where a value was read.
    fn follow(&mut self, steps: &[Step]) {
        let sources = steps.iter().flat_map(|step| &step.from);
        for source in sources {
            if let Source::Memory { addr, len } = *source
                && self.followed.len() < MOST_FOLLOWED
            {
                let range = addr..addr.saturating_add(len);
                if !self.followed.contains(&range) {
                    self.followed.push(range);
                }
            }
        }
    }

    /// Which of several values are followed, the best first, where the scene stands before the step.
    fn chosen(&mut self, step: &Step, choice: Choice) -> Result<Vec<Value>> {
        let registers = self.scene.registers(step.thread)?;
        let mappings = self.scene.mappings()?;
        let mapped = |address: u64| {
            mappings
                .iter()
                .any(|mapping| (mapping.start..mapping.end).contains(&address))
        };
        let mut fitting: Vec<(u64, Value)> = Vec::new();
        for source in &step.from {
            let found = match source {
                Source::Register(register) => {
                    // Where the stack is, is no answer to anything.
                    if register.full_register() == Register::RSP {
                        continue;
                    }
                    let value = general(&registers, *register);
                    value.map(|number| (number, register_value(step.thread, *register)))
                }
                Source::Memory { addr, len } => {
                    let number = self.scene.number(*addr, *len)?;
                    let value = Value::Memory {
                        addr: *addr,
                        len: *len,
                    };
                    number.map(|number| (number, value))
                }
                Source::Other => None,
            };
            let Some((number, value)) = found else {
                continue;
            };
            let pointer = number >= NULL_PAGE && mapped(number);
            let fits = match choice {
                Choice::Pointer => pointer,
                Choice::Null => number == 0,
                Choice::Number | Choice::Stop => !pointer,
            };
            if fits {
                fitting.push((number, value));
            }
        }
        fitting.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        Ok(fitting.into_iter().map(|(_, value)| value).collect())
    }

    /// The line of the program that a step is in, or that called the library function that it is in.
    pub fn site_of(&mut self, step: &Step) -> Result<Site> {
        let own = self
            .scene
            .own_line(step.ins.ip(), step.position, step.thread);
        match own {
            Some(site) => Ok(site),
            None => self.scene.site_at(step.position, step.thread),
        }
    }

    /// Whether a step is in the program's own code.
    pub fn is_own(&mut self, step: &Step) -> bool {
        let own = self
            .scene
            .own_line(step.ins.ip(), step.position, step.thread);
        own.is_some()
    }
}

/// A general register as the value to follow.
pub fn register_value(thread: u32, register: Register) -> Value {
    Value::Register {
        thread,
        register,
        bytes: 0..register.size() as u8,
    }
}

/// What a general register holds.
pub fn general(registers: &Registers, register: Register) -> Option<u64> {
    if !register.is_gpr() {
        return None;
    }
    let word = *registers.words.get(register.full_register().number())?;
    let bits = 8 * register.size() as u32;
    Some(word & (u64::MAX >> (64 - bits)))
}
