//! What is asked in the midst of a run, without leaving it. In: a condition on the frame. Out: gdb's agent expression of
//! it, for the worker; and its answer, where a thread has stopped.

use clew_symbols::Registers;
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

const ADD: u8 = 0x02;
const LOG_NOT: u8 = 0x0e;
const EQUAL: u8 = 0x13;
const LESS_UNSIGNED: u8 = 0x15;
const CONST8: u8 = 0x22;
const CONST64: u8 = 0x25;
const REGISTER: u8 = 0x26;
const END: u8 = 0x27;

impl Condition {
    /// For [`clew_timeline::Break::conditions`].
    pub fn encoded(&self) -> Vec<Vec<u8>> {
        let mut code = Vec::new();
        match *self {
            Condition::Always => return Vec::new(),
            Condition::Frame {
                register: number,
                offset,
                is,
            } => {
                register(number, &mut code);
                constant(offset as u64, &mut code);
                code.push(ADD);
                constant(is, &mut code);
                code.push(EQUAL);
            }
            Condition::Above(limit) => {
                register(Registers::RSP, &mut code);
                constant(limit, &mut code);
                code.extend([LESS_UNSIGNED, LOG_NOT]);
            }
            Condition::Below(limit) => {
                register(Registers::RSP, &mut code);
                constant(limit, &mut code);
                code.push(LESS_UNSIGNED);
            }
        }
        code.push(END);
        vec![code]
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

/// gdb counts rbx before rcx and rdx.
fn register(register: Register, code: &mut Vec<u8>) {
    let number = match register.0 {
        1 => 3,
        3 => 1,
        other => other,
    };
    code.push(REGISTER);
    code.extend(number.to_be_bytes());
}

fn constant(value: u64, code: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(small) => code.extend([CONST8, small]),
        Err(_) => {
            code.push(CONST64);
            code.extend(value.to_be_bytes());
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
