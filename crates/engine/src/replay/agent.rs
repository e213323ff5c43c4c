//! gdb's agent expressions: bytecode of a condition in, decoded and checked once; then as often as one
//! likes, registers and memory in, a value out. (gdb's manual, "The GDB Agent Expression Mechanism".)
//!
//! Whatever the bytes are, neither decoding nor evaluating panics or runs for long. What traces, prints
//! or keeps variables is refused: a condition has no business with it.

use thiserror::Error;

use crate::context::{R8, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, Regs};

/// Steps of one evaluation: gdb's conditions have no loops, others may end.
const MOST_STEPS: u32 = 1 << 16;
/// Values on the stack at a time.
const MOST_VALUES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AgentError {
    #[error("the condition has an operation that can't be evaluated here: {0:#04x} at byte {1}")]
    Operation(u8, usize),
    #[error("the condition ends in the midst of an operation at byte {0}")]
    CutOff(usize),
    #[error("the condition jumps to byte {0}, where no operation begins")]
    Target(usize),
    #[error("the condition extends a value from {0} bits")]
    Bits(u8),
    #[error("the condition takes more values from its stack than are there")]
    Empty,
    #[error("the condition puts more than {MOST_VALUES} values on its stack")]
    Full,
    #[error("the condition doesn't come to an end")]
    Endless,
    #[error("the condition divides by zero")]
    Division,
    #[error("the condition asks for register {0}, which isn't known by that number")]
    Register(u16),
    #[error("the condition reads memory at {0:#x}, where there is none")]
    Memory(u64),
}

/// What a condition is about.
pub trait Subject {
    /// A register by gdb's number.
    fn register(&self, number: u16) -> Option<u64>;
    /// Fills `bytes` from memory, or says that it can't.
    fn read(&self, addr: u64, bytes: &mut [u8]) -> bool;
}

/// A condition, ready to be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    operations: Vec<Op>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Add,
    Sub,
    Mul,
    DivSigned,
    DivUnsigned,
    RemSigned,
    RemUnsigned,
    Lsh,
    RshSigned,
    RshUnsigned,
    LogNot,
    BitAnd,
    BitOr,
    BitXor,
    BitNot,
    Equal,
    LessSigned,
    LessUnsigned,
    /// Sign-extends from bit `n - 1`; the value is 64 - n.
    Extend(u8),
    /// Keeps the bits of the mask.
    Mask(u64),
    /// Reads so many bytes.
    Load(u8),
    IfGoto(u32),
    Goto(u32),
    Const(u64),
    Register(u16),
    Pick(u8),
    Pop,
    Swap,
    Rot,
    End,
    /// The bytes end here: coming here is a mistake.
    CutOff(u32),
}

impl Condition {
    pub fn decode(bytes: &[u8]) -> Result<Condition, AgentError> {
        let mut operations = Vec::new();
        // Which operation begins at a byte.
        let mut starts = vec![None; bytes.len()];
        let mut jumps = Vec::new();
        let mut at = 0;
        while let Some(&code) = bytes.get(at) {
            let (op, len) = operation(bytes, at)?;
            if matches!(op, Op::IfGoto(_) | Op::Goto(_)) {
                jumps.push(operations.len());
            }
            debug_assert!(len > 0, "{code}");
            starts[at] = Some(operations.len() as u32);
            operations.push(op);
            at += len;
        }
        operations.push(Op::CutOff(at as u32));
        for jump in jumps {
            if let Op::IfGoto(to) | Op::Goto(to) = &mut operations[jump] {
                let target = *to as usize;
                *to = starts
                    .get(target)
                    .copied()
                    .flatten()
                    .ok_or(AgentError::Target(target))?;
            }
        }
        Ok(Condition { operations })
    }

    /// The value that it leaves. Of a condition, all but zero is true.
    pub fn evaluate(&self, subject: &impl Subject) -> Result<u64, AgentError> {
        let mut stack = Stack {
            values: [0; MOST_VALUES],
            depth: 0,
        };
        let mut next = 0usize;
        for _ in 0..MOST_STEPS {
            let op = self.operations[next];
            next += 1;
            match op {
                Op::Add => stack.two(u64::wrapping_add)?,
                Op::Sub => stack.two(u64::wrapping_sub)?,
                Op::Mul => stack.two(u64::wrapping_mul)?,
                Op::DivSigned => {
                    stack.divide(|a, b| (a as i64).wrapping_div(b as i64) as u64)?;
                }
                Op::DivUnsigned => stack.divide(|a, b| a / b)?,
                Op::RemSigned => {
                    stack.divide(|a, b| (a as i64).wrapping_rem(b as i64) as u64)?;
                }
                Op::RemUnsigned => stack.divide(|a, b| a % b)?,
                Op::Lsh => stack.two(|a, b| if b < 64 { a << b } else { 0 })?,
                Op::RshSigned => stack.two(|a, b| (a as i64 >> b.min(63)) as u64)?,
                Op::RshUnsigned => stack.two(|a, b| if b < 64 { a >> b } else { 0 })?,
                Op::LogNot => stack.one(|a| (a == 0) as u64)?,
                Op::BitAnd => stack.two(|a, b| a & b)?,
                Op::BitOr => stack.two(|a, b| a | b)?,
                Op::BitXor => stack.two(|a, b| a ^ b)?,
                Op::BitNot => stack.one(|a| !a)?,
                Op::Equal => stack.two(|a, b| (a == b) as u64)?,
                Op::LessSigned => stack.two(|a, b| ((a as i64) < b as i64) as u64)?,
                Op::LessUnsigned => stack.two(|a, b| (a < b) as u64)?,
                Op::Extend(shift) => stack.one(|a| ((a << shift) as i64 >> shift) as u64)?,
                Op::Mask(mask) => stack.one(|a| a & mask)?,
                Op::Load(size) => {
                    let addr = stack.pop()?;
                    let mut bytes = [0; 8];
                    if !subject.read(addr, &mut bytes[..size as usize]) {
                        return Err(AgentError::Memory(addr));
                    }
                    stack.push(u64::from_le_bytes(bytes))?;
                }
                Op::IfGoto(to) => {
                    if stack.pop()? != 0 {
                        next = to as usize;
                    }
                }
                Op::Goto(to) => next = to as usize,
                Op::Const(value) => stack.push(value)?,
                Op::Register(number) => {
                    let value = subject.register(number);
                    stack.push(value.ok_or(AgentError::Register(number))?)?;
                }
                Op::Pick(n) => {
                    let value = *stack.below_top(n as usize)?;
                    stack.push(value)?;
                }
                Op::Pop => {
                    stack.pop()?;
                }
                Op::Swap => {
                    let top = *stack.below_top(0)?;
                    let below = std::mem::replace(stack.below_top(1)?, top);
                    *stack.below_top(0)? = below;
                }
                Op::Rot => {
                    // a b c, c on top, becomes c a b.
                    let (a, b, c) = (
                        *stack.below_top(2)?,
                        *stack.below_top(1)?,
                        *stack.below_top(0)?,
                    );
                    *stack.below_top(2)? = c;
                    *stack.below_top(1)? = a;
                    *stack.below_top(0)? = b;
                }
                Op::End => return stack.pop(),
                Op::CutOff(at) => return Err(AgentError::CutOff(at as usize)),
            }
        }
        Err(AgentError::Endless)
    }
}

struct Stack {
    values: [u64; MOST_VALUES],
    depth: usize,
}

impl Stack {
    #[inline]
    fn push(&mut self, value: u64) -> Result<(), AgentError> {
        *self.values.get_mut(self.depth).ok_or(AgentError::Full)? = value;
        self.depth += 1;
        Ok(())
    }

    #[inline]
    fn pop(&mut self) -> Result<u64, AgentError> {
        self.depth = self.depth.checked_sub(1).ok_or(AgentError::Empty)?;
        Ok(self.values[self.depth])
    }

    #[inline]
    fn below_top(&mut self, n: usize) -> Result<&mut u64, AgentError> {
        let at = self.depth.checked_sub(n + 1).ok_or(AgentError::Empty)?;
        Ok(&mut self.values[at])
    }

    #[inline]
    fn one(&mut self, f: impl FnOnce(u64) -> u64) -> Result<(), AgentError> {
        let top = self.below_top(0)?;
        *top = f(*top);
        Ok(())
    }

    #[inline]
    fn two(&mut self, f: impl FnOnce(u64, u64) -> u64) -> Result<(), AgentError> {
        let b = self.pop()?;
        let a = self.below_top(0)?;
        *a = f(*a, b);
        Ok(())
    }

    fn divide(&mut self, f: impl FnOnce(u64, u64) -> u64) -> Result<(), AgentError> {
        if *self.below_top(0)? == 0 {
            return Err(AgentError::Division);
        }
        self.two(f)
    }
}

/// The operation at a byte, and its length; jumps still name bytes.
fn operation(bytes: &[u8], at: usize) -> Result<(Op, usize), AgentError> {
    // Operands come with the highest byte first.
    let operand = |len: usize| {
        let bytes = bytes.get(at + 1..at + 1 + len);
        let bytes = bytes.ok_or(AgentError::CutOff(at))?;
        Ok(bytes.iter().fold(0u64, |value, &b| value << 8 | b as u64))
    };
    let bits = || match operand(1)? as u8 {
        0 => Err(AgentError::Bits(0)),
        bits => Ok(bits.min(64)),
    };
    Ok(match bytes[at] {
        0x02 => (Op::Add, 1),
        0x03 => (Op::Sub, 1),
        0x04 => (Op::Mul, 1),
        0x05 => (Op::DivSigned, 1),
        0x06 => (Op::DivUnsigned, 1),
        0x07 => (Op::RemSigned, 1),
        0x08 => (Op::RemUnsigned, 1),
        0x09 => (Op::Lsh, 1),
        0x0a => (Op::RshSigned, 1),
        0x0b => (Op::RshUnsigned, 1),
        0x0e => (Op::LogNot, 1),
        0x0f => (Op::BitAnd, 1),
        0x10 => (Op::BitOr, 1),
        0x11 => (Op::BitXor, 1),
        0x12 => (Op::BitNot, 1),
        0x13 => (Op::Equal, 1),
        0x14 => (Op::LessSigned, 1),
        0x15 => (Op::LessUnsigned, 1),
        0x16 => (Op::Extend(64 - bits()?), 2),
        0x17 => (Op::Load(1), 1),
        0x18 => (Op::Load(2), 1),
        0x19 => (Op::Load(4), 1),
        0x1a => (Op::Load(8), 1),
        0x20 => (Op::IfGoto(operand(2)? as u32), 3),
        0x21 => (Op::Goto(operand(2)? as u32), 3),
        0x22 => (Op::Const(operand(1)?), 2),
        0x23 => (Op::Const(operand(2)?), 3),
        0x24 => (Op::Const(operand(4)?), 5),
        0x25 => (Op::Const(operand(8)?), 9),
        0x26 => (Op::Register(operand(2)? as u16), 3),
        0x27 => (Op::End, 1),
        0x28 => (Op::Pick(0), 1),
        0x29 => (Op::Pop, 1),
        0x2a => (Op::Mask(u64::MAX >> (64 - bits()?)), 2),
        0x2b => (Op::Swap, 1),
        0x32 => (Op::Pick(operand(1)? as u8), 2),
        0x33 => (Op::Rot, 1),
        // Floats, traces, trace variables, printf, and what there isn't.
        other => return Err(AgentError::Operation(other, at)),
    })
}

/// Numbers of registers that gdb gives as the target's description says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub fs_base: u16,
    pub gs_base: u16,
}

/// A general register by gdb's number for amd64: rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15,
/// rip, eflags, the segments, and bases as numbered.
pub fn general_register(regs: &Regs, numbers: Numbers, number: u16) -> Option<u64> {
    const CODE: u64 = 0x33;
    const STACK: u64 = 0x2b;
    const FIRST: [usize; 8] = [RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP];
    Some(match number {
        0..8 => regs.gpr[FIRST[number as usize]],
        8..16 => regs.gpr[R8 + number as usize - 8],
        16 => regs.rip,
        17 => regs.rflags,
        18 => CODE,
        19 => STACK,
        20..24 => 0,
        n if n == numbers.fs_base => regs.fs_base,
        n if n == numbers.gs_base => regs.gs_base,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Register n holds 100 + n; memory from 0x1000 to 0x2000 holds its addresses' low bytes.
    struct Plain;

    impl Subject for Plain {
        fn register(&self, number: u16) -> Option<u64> {
            (number < 24).then_some(100 + number as u64)
        }

        fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
            for (n, byte) in bytes.iter_mut().enumerate() {
                let at = addr.wrapping_add(n as u64);
                if !(0x1000..0x2000).contains(&at) {
                    return false;
                }
                *byte = at as u8;
            }
            true
        }
    }

    fn value(bytes: &[u8]) -> Result<u64, AgentError> {
        Condition::decode(bytes)?.evaluate(&Plain)
    }

    #[test]
    fn each_operation_does_its_own() {
        let minus = |n: i64| n as u64;
        // Two constants of a byte, the first subtracted from 0 if told so, then an operation.
        let two = |a: u8, negate: bool, b: u8, op: u8| {
            let mut bytes = vec![0x22, 0, 0x22, a, if negate { 0x03 } else { 0x02 }];
            bytes.extend([0x22, b, op, 0x27]);
            value(&bytes)
        };
        let cases = [
            (7, false, 3, 0x02, 10),
            (7, true, 3, 0x03, minus(-10)),
            (7, true, 3, 0x04, minus(-21)),
            (7, true, 3, 0x05, minus(-2)),
            (7, true, 3, 0x06, minus(-7) / 3),
            (7, true, 3, 0x07, minus(-1)),
            (7, true, 3, 0x08, minus(-7) % 3),
            (7, false, 3, 0x09, 56),
            (7, false, 64, 0x09, 0),
            (7, true, 1, 0x0a, minus(-4)),
            (7, true, 200, 0x0a, minus(-1)),
            (7, true, 60, 0x0b, 15),
            (7, false, 200, 0x0b, 0),
            (6, false, 3, 0x0f, 2),
            (6, false, 3, 0x10, 7),
            (6, false, 3, 0x11, 5),
            (6, false, 6, 0x13, 1),
            (6, true, 6, 0x14, 1),
            (6, true, 6, 0x15, 0),
        ];
        for (a, negate, b, op, expected) in cases {
            assert_eq!(two(a, negate, b, op), Ok(expected), "{op:#x}");
        }
        assert_eq!(two(7, false, 0, 0x05), Err(AgentError::Division));
        assert_eq!(two(7, false, 0, 0x08), Err(AgentError::Division));
        assert_eq!(value(&[0x22, 5, 0x0e, 0x27]), Ok(0));
        assert_eq!(value(&[0x22, 5, 0x12, 0x27]), Ok(!5));
        assert_eq!(value(&[0x22, 0x85, 0x16, 8, 0x27]), Ok(minus(-0x7b)));
        assert_eq!(value(&[0x23, 0x12, 0x85, 0x2a, 8, 0x27]), Ok(0x85));
        assert_eq!(value(&[0x24, 1, 2, 3, 4, 0x27]), Ok(0x0102_0304));
        let eight = [0x25, 0xff, 2, 3, 4, 5, 6, 7, 8, 0x16, 64, 0x27];
        assert_eq!(value(&eight), Ok(0xff02_0304_0506_0708));
        assert_eq!(value(&[0x26, 0, 17, 0x27]), Ok(117));
        assert_eq!(value(&[0x26, 1, 0, 0x27]), Err(AgentError::Register(256)));
    }

    #[test]
    fn memory_is_read_in_its_own_order() {
        let read = |op| value(&[0x23, 0x12, 0x34, op, 0x27]);
        assert_eq!(read(0x17), Ok(0x34));
        assert_eq!(read(0x18), Ok(0x3534));
        assert_eq!(read(0x19), Ok(0x3736_3534));
        assert_eq!(read(0x1a), Ok(0x3b3a_3938_3736_3534));
        assert_eq!(
            value(&[0x22, 8, 0x17, 0x27]),
            Err(AgentError::Memory(8)),
            "there is none"
        );
    }

    #[test]
    fn the_stack_is_moved_as_the_manual_says() {
        // 1 2 3, then the operation; what is on the stack afterwards as digits.
        let after = |ops: &[u8], count: usize| {
            let mut bytes = vec![0x22, 1, 0x22, 2, 0x22, 3];
            bytes.extend(ops);
            // top + 10 * next + 100 * third
            for _ in 1..count {
                bytes.extend([0x2b, 0x22, 10, 0x04, 0x02]);
            }
            bytes.push(0x27);
            value(&bytes)
        };
        assert_eq!(after(&[], 1), Ok(3));
        assert_eq!(after(&[0x29], 1), Ok(2));
        assert_eq!(after(&[0x28], 2), Ok(33));
        assert_eq!(after(&[0x2b], 2), Ok(32));
        assert_eq!(after(&[0x32, 2], 1), Ok(1));
        assert_eq!(after(&[0x32, 3], 1), Err(AgentError::Empty));
        // c a b: 2 on top, then 1, then 3.
        assert_eq!(after(&[0x33], 1), Ok(2));
        assert_eq!(after(&[0x33, 0x29], 1), Ok(1));
        assert_eq!(after(&[0x33, 0x29, 0x29], 1), Ok(3));
    }

    #[test]
    fn jumps_go_where_operations_begin() {
        // if (reg 0 == 100) 1 else 2
        let condition = [
            0x26, 0, 0, 0x22, 100, 0x13, 0x20, 0, 12, 0x22, 2, 0x27, 0x22, 1, 0x27,
        ];
        assert_eq!(value(&condition), Ok(1));
        assert_eq!(
            Condition::decode(&[0x21, 0, 1, 0x27]),
            Err(AgentError::Target(1))
        );
        assert_eq!(
            Condition::decode(&[0x21, 0, 4, 0x27]),
            Err(AgentError::Target(4))
        );
        assert_eq!(value(&[0x21, 0, 0]), Err(AgentError::Endless));
        assert_eq!(
            value(&[0x22, 1, 0x21, 0, 0]),
            Err(AgentError::Full),
            "which comes first"
        );
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for op in [
            0x00, 0x01, 0x0c, 0x0d, 0x1b, 0x2c, 0x2e, 0x30, 0x31, 0x34, 0xff,
        ] {
            assert_eq!(
                Condition::decode(&[0x22, 1, op, 0, 0, 0]),
                Err(AgentError::Operation(op, 2))
            );
        }
        assert_eq!(Condition::decode(&[0x24, 1]), Err(AgentError::CutOff(0)));
        assert_eq!(value(&[0x22, 1]), Err(AgentError::CutOff(2)));
        assert_eq!(value(&[]), Err(AgentError::CutOff(0)));
        assert_eq!(value(&[0x27]), Err(AgentError::Empty));
        assert_eq!(
            Condition::decode(&[0x22, 1, 0x16, 0, 0x27]),
            Err(AgentError::Bits(0))
        );
    }

    #[test]
    fn registers_have_gdbs_numbers() {
        let mut regs = Regs::default();
        for (n, value) in regs.words_mut().iter_mut().enumerate() {
            *value = n as u64;
        }
        let numbers = Numbers {
            fs_base: 58,
            gs_base: 59,
        };
        let got = |number| general_register(&regs, numbers, number);
        let first: Vec<_> = (0..18).filter_map(got).collect();
        // rbx comes before rcx, rsi and rdi before rbp and rsp.
        let expected = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
        assert_eq!(first, expected);
        assert_eq!((got(58), got(59), got(60)), (Some(18), Some(19), None));
    }

    proptest! {
        #[test]
        fn nothing_that_gdb_could_send_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = value(&bytes);
        }

        #[test]
        fn nor_operations_in_any_order(
            bytes in prop::collection::vec(prop_oneof![2u8..0x34, 0u8..8], 0..200),
        ) {
            let bytes: Vec<u8> = bytes.into_iter().chain([0x27]).collect();
            if let Ok(condition) = Condition::decode(&bytes) {
                let _ = condition.evaluate(&Plain);
            }
        }
    }
}
