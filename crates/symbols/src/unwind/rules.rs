//! What call frame information says about a frame: its rules and the frame's registers and memory
//! in, the caller's registers out.

use super::cfi::Found;
use super::{Caller, Memory, Saved, word};
use crate::{Reader, Registers, StackEnd};
use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, EvaluationResult, FrameDescriptionEntry,
    Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};
use std::ops::Range;

/// Expressions in unwind information are a few operations long.
const MAX_OPERATIONS: u32 = 10_000;

impl Found<'_> {
    /// The register and offset that make the CFA at the module's `address`.
    pub fn cfa_rule(&self, address: u64) -> Option<(Register, i64)> {
        fn rule<S: UnwindSection<Reader>>(
            section: &S,
            bases: &BaseAddresses,
            entry: &FrameDescriptionEntry<Reader>,
            address: u64,
        ) -> Option<(Register, i64)> {
            let mut context = UnwindContext::new();
            let row = entry.unwind_info_for_address(section, bases, &mut context, address);
            match row.ok()?.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => Some((*register, *offset)),
                CfaRule::Expression(_) => None,
            }
        }
        match self {
            Found::Eh(section, bases, entry) => rule(*section, bases, entry, address),
            Found::Debug(section, bases, entry) => rule(*section, bases, entry, address),
        }
    }

    /// The code that this is about.
    pub fn extent(&self) -> Range<u64> {
        let (Found::Eh(_, _, entry) | Found::Debug(_, _, entry)) = self;
        entry.initial_address()..entry.end_address()
    }

    /// Registers that are in memory at the module's `address`.
    pub fn saved(&self, address: u64) -> Vec<Saved> {
        fn all<S: UnwindSection<Reader>>(
            section: &S,
            bases: &BaseAddresses,
            entry: &FrameDescriptionEntry<Reader>,
            address: u64,
        ) -> Option<Vec<Saved>> {
            let mut context = UnwindContext::new();
            let row = entry.unwind_info_for_address(section, bases, &mut context, address);
            let row = row.ok()?;
            let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
                return None;
            };
            let saved = row.registers().filter_map(|(which, rule)| match rule {
                RegisterRule::Offset(from_cfa) => Some(Saved {
                    register: *which,
                    base: *register,
                    displacement: offset.checked_add(*from_cfa)?,
                }),
                _ => None,
            });
            Some(saved.collect())
        }
        let found = match self {
            Found::Eh(section, bases, entry) => all(*section, bases, entry, address),
            Found::Debug(section, bases, entry) => all(*section, bases, entry, address),
        };
        found.unwrap_or_default()
    }

    /// The caller of a frame at the module's `address`.
    pub fn caller(
        &self,
        registers: &Registers,
        address: u64,
        bias: u64,
        memory: Memory<'_>,
    ) -> Caller {
        match self {
            Found::Eh(section, bases, entry) => {
                apply(*section, bases, entry, registers, address, bias, memory)
            }
            Found::Debug(section, bases, entry) => {
                apply(*section, bases, entry, registers, address, bias, memory)
            }
        }
    }
}

fn apply<S: UnwindSection<Reader>>(
    section: &S,
    bases: &BaseAddresses,
    entry: &FrameDescriptionEntry<Reader>,
    registers: &Registers,
    address: u64,
    bias: u64,
    memory: Memory<'_>,
) -> Caller {
    let is_signal = entry.is_signal_trampoline();
    let lost = |cfa, end| Caller {
        cfa,
        is_signal,
        registers: Err(end),
        guessed: false,
    };
    let mut context = UnwindContext::new();
    let Ok(row) = entry.unwind_info_for_address(section, bases, &mut context, address) else {
        return lost(None, StackEnd::Unreadable);
    };
    let mut frame = Evaluator {
        section,
        entry,
        registers,
        bias,
        memory,
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => registers
            .get(*register)
            .map(|value| value.wrapping_add_signed(*offset)),
        CfaRule::Expression(expression) => frame.evaluate(expression, None),
    };
    let Some(cfa) = cfa else {
        return lost(None, StackEnd::Unreadable);
    };
    let mut outer = Registers::new();
    // What the callee must keep is as it is here, unless told otherwise; the rest is unknown.
    let kept = [Registers::RBX, Registers::RBP]
        .into_iter()
        .chain((12..=15).map(Register));
    let dropped = undefined(section, bases, entry);
    for register in kept.filter(|register| !dropped.contains(register)) {
        outer.set(register, registers.get(register));
    }
    outer.set(Registers::RSP, Some(cfa));
    let return_register = entry.cie().return_address_register();
    let mut return_address = None;
    for (register, rule) in row.registers() {
        let value = match rule {
            RegisterRule::Undefined | RegisterRule::Architectural => None,
            RegisterRule::SameValue => registers.get(*register),
            RegisterRule::Offset(offset) => word(frame.memory, cfa.wrapping_add_signed(*offset)),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
            RegisterRule::Register(other) => registers.get(*other),
            RegisterRule::Expression(expression) => frame
                .evaluate(expression, Some(cfa))
                .and_then(|address| word(frame.memory, address)),
            RegisterRule::ValExpression(expression) => frame.evaluate(expression, Some(cfa)),
            RegisterRule::Constant(value) => Some(*value),
            _ => None,
        };
        outer.set(*register, value);
        if *register == return_register {
            return_address = Some(value);
        }
    }
    match return_address {
        // Nobody called this function: so the C library marks where programs and threads start.
        None => lost(Some(cfa), StackEnd::Outermost),
        Some(None) => lost(Some(cfa), StackEnd::Unreadable),
        Some(value) => {
            outer.set(Registers::RIP, value);
            Caller {
                cfa: Some(cfa),
                is_signal,
                registers: Ok(outer),
                guessed: false,
            }
        }
    }
}

/// Registers that the rules say are lost, at any place of the function: the table's rows don't
/// tell these from registers without a rule.
fn undefined<S: UnwindSection<Reader>>(
    section: &S,
    bases: &BaseAddresses,
    entry: &FrameDescriptionEntry<Reader>,
) -> Vec<Register> {
    let mut found = Vec::new();
    for mut instructions in [
        entry.cie().instructions(section, bases),
        entry.instructions(section, bases),
    ] {
        while let Ok(Some(instruction)) = instructions.next() {
            if let CallFrameInstruction::Undefined { register } = instruction {
                found.push(register);
            }
        }
    }
    found
}

struct Evaluator<'a, S> {
    section: &'a S,
    entry: &'a FrameDescriptionEntry<Reader>,
    registers: &'a Registers,
    bias: u64,
    memory: Memory<'a>,
}

impl<S: UnwindSection<Reader>> Evaluator<'_, S> {
    /// The value of an expression; rules for registers start with the CFA on their stack.
    fn evaluate(&mut self, expression: &UnwindExpression<usize>, cfa: Option<u64>) -> Option<u64> {
        let expression = expression.get(self.section).ok()?;
        let mut evaluation = expression.evaluation(self.entry.cie().encoding());
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut state = evaluation.evaluate().ok()?;
        loop {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let mut bytes = [0; 8];
                    let part = bytes.get_mut(..usize::from(size))?;
                    if (self.memory)(address, part) != part.len() {
                        return None;
                    }
                    evaluation
                        .resume_with_memory(Value::Generic(u64::from_le_bytes(bytes)))
                        .ok()?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.registers.get(register)?;
                    evaluation
                        .resume_with_register(Value::Generic(value))
                        .ok()?
                }
                EvaluationResult::RequiresRelocatedAddress(address) => evaluation
                    .resume_with_relocated_address(address.wrapping_add(self.bias))
                    .ok()?,
                _ => return None,
            };
        }
        let [piece] = evaluation.as_result() else {
            return None;
        };
        match piece.location {
            Location::Address { address } => Some(address),
            Location::Value { value } => value.to_u64(u64::MAX).ok(),
            _ => None,
        }
    }
}
