//! Conditions that a worker evaluates in the midst of a run. In: what to compare. Out: gdb's agent bytecode.

/// Code of one condition. Each operation takes its operands from the stack and leaves its result there.
#[derive(Clone, Default)]
pub struct Code {
    bytes: Vec<u8>,
}

/// Numbers of registers as instructions have them (rax, rcx, rdx, rbx, ...) to gdb's (rax, rbx, rcx, rdx, ...).
const GDB: [u16; 8] = [0, 2, 3, 1, 7, 6, 4, 5];

impl Code {
    pub fn new() -> Code {
        Code::default()
    }

    /// The condition, to be sent.
    pub fn end(mut self) -> Vec<u8> {
        self.bytes.push(0x27);
        self.bytes
    }

    /// A register, by the number that instructions have for it.
    pub fn register(mut self, number: u8) -> Code {
        let gdb = GDB.get(usize::from(number)).copied();
        self.bytes.push(0x26);
        self.bytes
            .extend(gdb.unwrap_or(number.into()).to_be_bytes());
        self
    }

    pub fn constant(mut self, value: u64) -> Code {
        match value {
            0..=0xff => self.bytes.extend([0x22, value as u8]),
            0x100..=0xffff_ffff => {
                self.bytes.push(0x24);
                self.bytes.extend((value as u32).to_be_bytes());
            }
            _ => {
                self.bytes.push(0x25);
                self.bytes.extend(value.to_be_bytes());
            }
        }
        self
    }

    fn operation(mut self, operation: u8) -> Code {
        self.bytes.push(operation);
        self
    }

    /// What is in memory so far behind the address on the stack.
    pub fn word(self, offset: u64) -> Code {
        self.plus(offset).operation(0x1a)
    }

    pub fn half(self, offset: u64) -> Code {
        self.plus(offset).operation(0x19)
    }

    pub fn byte(self, offset: u64) -> Code {
        self.plus(offset).operation(0x17)
    }

    pub fn plus(self, offset: u64) -> Code {
        match offset {
            0 => self,
            _ => self.constant(offset).operation(0x02),
        }
    }

    /// The sum of two.
    pub fn add(mut self, other: Code) -> Code {
        self.append(other);
        self.operation(0x02)
    }

    pub fn minus(mut self, other: Code) -> Code {
        self.append(other);
        self.operation(0x03)
    }

    pub fn times(mut self, other: Code) -> Code {
        self.append(other);
        self.operation(0x04)
    }

    pub fn masked(self, mask: u64) -> Code {
        self.constant(mask).operation(0x0f)
    }

    /// With a sign.
    pub fn less(self, than: u64) -> Code {
        self.constant(than).operation(0x14)
    }

    pub fn less_unsigned(self, than: u64) -> Code {
        self.constant(than).operation(0x15)
    }

    pub fn equals(self, value: u64) -> Code {
        self.constant(value).operation(0x13)
    }

    pub fn not(self) -> Code {
        self.operation(0x0e)
    }

    /// Truth values of two conditions.
    pub fn and(self, other: Code) -> Code {
        self.unless(false, other)
    }

    pub fn or(self, other: Code) -> Code {
        self.unless(true, other)
    }

    /// The first one if it has that truth, else the other, which isn't evaluated before.
    fn unless(mut self, truth: bool, other: Code) -> Code {
        // dup; [not]; if_goto end; pop; other; end:
        self.bytes.push(0x28);
        if !truth {
            self.bytes.push(0x0e);
        }
        let end = self.bytes.len() + 4 + other.bytes.len();
        self.bytes.push(0x20);
        self.bytes.extend((end as u16).to_be_bytes());
        self.bytes.push(0x29);
        self.append(other);
        self
    }

    /// Jumps name bytes of the whole: those of what is appended move.
    fn append(&mut self, other: Code) {
        let base = self.bytes.len();
        let mut at = 0;
        while let Some(&code) = other.bytes.get(at) {
            let len = match code {
                0x22 | 0x16 | 0x2a | 0x32 => 2,
                0x20 | 0x21 | 0x23 | 0x26 => 3,
                0x24 => 5,
                0x25 => 9,
                _ => 1,
            };
            let mut bytes = other.bytes[at..at + len].to_vec();
            if matches!(code, 0x20 | 0x21) {
                let to = u16::from_be_bytes([bytes[1], bytes[2]]) + base as u16;
                bytes[1..].copy_from_slice(&to.to_be_bytes());
            }
            self.bytes.extend(bytes);
            at += len;
        }
    }

    /// Whether the value that `subject` leaves is in one of these ranges, which are in order: a search by halving.
    pub fn within(subject: &Code, ranges: &[(u64, u64)]) -> Code {
        match ranges {
            [] => Code::new().constant(0),
            [(first, behind)] => {
                // subject - first < length, without a sign
                subject
                    .clone()
                    .constant(*first)
                    .operation(0x03)
                    .constant(behind - first)
                    .operation(0x15)
            }
            _ => {
                let (low, high) = ranges.split_at(ranges.len() / 2);
                let is_low = subject.clone().constant(high[0].0).operation(0x15);
                let low = Code::within(subject, low);
                let high = Code::within(subject, high);
                is_low.choose(low, high)
            }
        }
    }

    /// One of two, by the truth on the stack.
    fn choose(mut self, yes: Code, no: Code) -> Code {
        // if_goto yes; no; goto end; yes; end:
        let to = self.bytes.len() + 3 + no.bytes.len() + 3;
        self.bytes.push(0x20);
        self.bytes.extend((to as u16).to_be_bytes());
        self.append(no);
        let end = self.bytes.len() + 3 + yes.bytes.len();
        self.bytes.push(0x21);
        self.bytes.extend((end as u16).to_be_bytes());
        self.append(yes);
        self
    }

    /// Jumps have 16 bits: whether all of it is within their reach.
    pub fn fits(&self) -> bool {
        self.bytes.len() < 0xf000
    }
}
