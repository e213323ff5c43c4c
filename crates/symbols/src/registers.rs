//! The registers of a frame, by their DWARF numbers, as far as they are known.

use gimli::Register;

/// The registers of a frame of x86-64 code. In an outer frame those that a call may destroy are
/// unknown, unless the unwind information tells where they were saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, rip: the DWARF numbers' order.
    general: [Option<u64>; 17],
    /// xmm0 to xmm15, known in the innermost frame only, since every call may destroy them.
    vectors: Option<Box<[u128; 16]>>,
}

const NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip",
];

impl Registers {
    pub const RBX: Register = Register(3);
    pub const RBP: Register = Register(6);
    pub const RSP: Register = Register(7);
    pub const R12: Register = Register(12);
    pub const RIP: Register = Register(16);
    /// xmm0; the others follow.
    pub const XMM0: Register = Register(17);

    /// All unknown.
    pub fn new() -> Registers {
        Registers::default()
    }

    /// From registers in the order of instruction encodings: rax, rcx, rdx, rbx, rsp, rbp, rsi,
    /// rdi, r8 to r15.
    pub fn from_encoding_order(gprs: [u64; 16], rip: u64) -> Registers {
        const DWARF: [usize; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
        let mut this = Registers::new();
        for (index, value) in gprs.into_iter().enumerate() {
            this.general[DWARF.get(index).copied().unwrap_or(index)] = Some(value);
        }
        this.general[16] = Some(rip);
        this
    }

    /// Adds xmm0 to xmm15, each as a little-endian number.
    pub fn with_vectors(mut self, xmm: [u128; 16]) -> Registers {
        self.vectors = Some(Box::new(xmm));
        self
    }

    /// rax to r15 and rip by DWARF number (0 to 16); none if unknown or another register.
    pub fn get(&self, register: Register) -> Option<u64> {
        self.general.get(usize::from(register.0)).copied().flatten()
    }

    /// xmm0 to xmm15 by DWARF number (17 to 32).
    pub fn vector(&self, register: Register) -> Option<u128> {
        let index = register.0.checked_sub(Registers::XMM0.0)?;
        self.vectors.as_ref()?.get(usize::from(index)).copied()
    }

    /// Sets one of rax to r15 and rip; other registers are left out.
    pub fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(slot) = self.general.get_mut(usize::from(register.0)) {
            *slot = value;
        }
    }

    pub fn pc(&self) -> Option<u64> {
        self.get(Registers::RIP)
    }

    pub fn sp(&self) -> Option<u64> {
        self.get(Registers::RSP)
    }

    /// The DWARF number of `rax`, `r8`, `rip`, `xmm3`, ...
    pub fn number(name: &str) -> Option<Register> {
        if let Some(index) = NAMES.iter().position(|&known| known == name) {
            return Some(Register(index as u16));
        }
        let index: u16 = name.strip_prefix("xmm")?.parse().ok()?;
        (index < 16).then_some(Register(Registers::XMM0.0 + index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_order_becomes_dwarf_order() {
        let mut gprs = [0; 16];
        for (value, slot) in gprs.iter_mut().enumerate() {
            *slot = value as u64;
        }
        let registers = Registers::from_encoding_order(gprs, 99);
        let by_name = |name| registers.get(Registers::number(name).unwrap());
        for (value, name) in ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8"]
            .iter()
            .enumerate()
        {
            assert_eq!(by_name(name), Some(value as u64), "{name}");
        }
        assert_eq!((by_name("r15"), by_name("rip")), (Some(15), Some(99)));
        assert_eq!(by_name("xmm0"), None);
    }
}
