//! What is asked in the midst of a run, without leaving it. In: a condition on the frame. Out: gdb's agent expression of
//! it, for the worker; and its answer, where a thread has stopped.

use clew_symbols::Registers;
use clew_symbols::agent::{ADD, Code, END, EQUAL, LESS_UNSIGNED, LOG_NOT};
use clew_symbols::gimli::Register;

/// A condition on the registers of a thread that stands at a breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    /// A register and an offset make this address: the frame's, which tells one call of a function from another.
    Frame {
        register: Register,
        offset: i64,
        is: u64,
    },
    /// The stack pointer is there or above: whatever was below has returned, or was unwound.
    Above(u64),
    /// The stack pointer is below.
    Below(u64),
}

impl Condition {
    /// For [`clew_timeline::Break::conditions`]. What can't be asked there is none: it stops, and is asked here.
    pub fn encoded(&self) -> Vec<Vec<u8>> {
        self.code().into_iter().collect()
    }

    fn code(&self) -> Option<Vec<u8>> {
        let mut code = Code::default();
        match *self {
            Condition::Always => return None,
            Condition::Frame {
                register: number,
                offset,
                is,
            } => {
                code.register(number)?;
                code.constant(offset as u64);
                code.op(ADD);
                code.constant(is);
                code.op(EQUAL);
            }
            Condition::Above(limit) => {
                code.register(Registers::RSP)?;
                code.constant(limit);
                code.op(LESS_UNSIGNED);
                code.op(LOG_NOT);
            }
            Condition::Below(limit) => {
                code.register(Registers::RSP)?;
                code.constant(limit);
                code.op(LESS_UNSIGNED);
            }
        }
        code.op(END);
        Some(code.0)
    }

    pub fn holds(&self, registers: &Registers) -> bool {
        let sp = registers.sp().unwrap_or(0);
        match *self {
            Condition::Always => true,
            Condition::Frame {
                register,
                offset,
                is,
            } => {
                let value = registers.get(register);
                value.map(|value| value.wrapping_add_signed(offset)) == Some(is)
            }
            Condition::Above(limit) => sp >= limit,
            Condition::Below(limit) => sp < limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_engine::replay::agent;

    struct Subject(Registers);

    impl agent::Subject for Subject {
        fn register(&self, number: u16) -> Option<u64> {
            let names = [
                "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11",
                "r12", "r13", "r14", "r15", "rip",
            ];
            self.0.get(Registers::number(names[number as usize])?)
        }

        fn read(&self, _: u64, _: &mut [u8]) -> bool {
            false
        }
    }

    #[test]
    fn the_worker_and_this_side_agree() {
        let gprs = std::array::from_fn(|n| 0x7fff_0000_1000 + 0x100 * n as u64);
        let registers = Registers::from_encoding_order(gprs, 0x40_1000);
        let sp = registers.sp().unwrap();
        let mut conditions = vec![
            Condition::Above(sp),
            Condition::Above(sp + 1),
            Condition::Below(sp),
            Condition::Below(sp + 1),
        ];
        for name in ["rax", "rbx", "rcx", "rdx", "rbp", "rsp", "r10"] {
            let register = Registers::number(name).unwrap();
            let value = registers.get(register).unwrap();
            for (offset, is) in [(16, value + 16), (-400, value - 400), (8, value)] {
                conditions.push(Condition::Frame {
                    register,
                    offset,
                    is,
                });
            }
        }
        for condition in conditions {
            let [code] = &condition.encoded()[..] else {
                panic!("{condition:?}")
            };
            let decoded = agent::Condition::decode(code).unwrap();
            let theirs = decoded.evaluate(&Subject(registers.clone())).unwrap() != 0;
            assert_eq!(theirs, condition.holds(&registers), "{condition:?}");
        }
    }
}
