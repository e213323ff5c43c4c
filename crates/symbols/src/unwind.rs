//! Stacks without frame pointers: a frame's registers and memory in, its caller's registers out.

pub(crate) mod cfi;
mod guess;
mod rules;
mod trampoline;

use crate::{Modules, Registers, StackEnd};

/// Reads memory of the process: from an address into a buffer; says how many bytes it could read.
pub type Memory<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> usize;

/// A frame as unwinding sees it: a function that was really called, inlined ones not told apart.
#[derive(Clone, Debug)]
pub struct RawFrame {
    pub registers: Registers,
    pub pc: u64,
    /// `pc`, or a byte less if the frame waits for a call to return: the call may be the last
    /// instruction of its function or line.
    pub lookup: u64,
    pub cfa: Option<u64>,
    pub is_signal: bool,
    /// Found without unwind information. Those outside of it depend on it being right.
    pub guessed: bool,
}

/// A register of the caller's that a function has saved, at `base + displacement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    pub register: gimli::Register,
    pub base: gimli::Register,
    pub displacement: i64,
}

/// What is known of the caller of a frame.
pub(crate) struct Caller {
    /// The frame's own CFA, if known, even where the caller isn't.
    pub cfa: Option<u64>,
    pub is_signal: bool,
    pub registers: Result<Registers, StackEnd>,
    pub guessed: bool,
}

impl Modules {
    /// The frames from the innermost out, at most `limit`, and why there are no more.
    pub fn unwind(
        &self,
        registers: &Registers,
        memory: Memory<'_>,
        limit: usize,
    ) -> (Vec<RawFrame>, StackEnd) {
        let mut frames = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut registers = registers.clone();
        // Whether pc is the instruction that runs next, and not one after a call.
        let mut interrupted = true;
        let mut guessed = false;
        loop {
            let Some(pc) = registers.pc() else {
                return (frames, StackEnd::Lost);
            };
            // Only the innermost frame may be at address 0, after a jump there.
            if pc == 0 && !frames.is_empty() {
                return (frames, StackEnd::Outermost);
            }
            if frames.len() >= limit {
                return (frames, StackEnd::Limit);
            }
            if !seen.insert((pc, registers.sp())) {
                return (frames, StackEnd::Cycle);
            }
            let lookup = if interrupted { pc } else { pc.wrapping_sub(1) };
            let caller = self.caller(&registers, lookup, memory);
            frames.push(RawFrame {
                pc,
                lookup,
                cfa: caller.cfa,
                is_signal: caller.is_signal,
                guessed,
                registers,
            });
            match caller.registers {
                Ok(outer) => registers = outer,
                Err(end) => return (frames, end),
            }
            interrupted = caller.is_signal;
            guessed = caller.guessed;
        }
    }

    /// How a frame's CFA is found at an instruction: a register (by its DWARF number) and what to add to it. None if that
    /// isn't known, or takes more.
    pub fn cfa_rule(&self, pc: u64) -> Option<(gimli::Register, i64)> {
        let image = self.find(pc)?;
        let address = image.local(pc);
        image.module.cfi().find(address)?.cfa_rule(address)
    }

    /// The caller of a frame whose code is found at `lookup`.
    fn caller(&self, registers: &Registers, lookup: u64, memory: Memory<'_>) -> Caller {
        if let Some(image) = self.find(lookup)
            && let Some(found) = image.module.cfi().find(image.local(lookup))
        {
            return found.caller(registers, image.local(lookup), image.bias, memory);
        }
        trampoline::caller(registers, memory)
            .unwrap_or_else(|| guess::caller(self, registers, lookup, memory))
    }
}

/// A word of the process's memory.
pub(crate) fn word(memory: Memory<'_>, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (memory(address, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
}
