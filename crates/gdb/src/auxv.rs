//! What the kernel told the program at its start. In: the stack that it began with. Out: the auxiliary vector, which gdb
//! needs to find the program and its loader, and the name that it was executed by.

use clew_recording::event::StreamId;
use clew_recording::reader::{ReadError, Recording};
use clew_recording::stack::Stack;

pub const AT_PHDR: u64 = 3;
pub const AT_PHNUM: u64 = 5;
pub const AT_BASE: u64 = 7;
pub const AT_ENTRY: u64 = 9;
const AT_EXECFN: u64 = 31;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auxv {
    pairs: Vec<(u64, u64)>,
    /// The path that was executed, as it was given.
    pub executed: Option<String>,
}

impl Auxv {
    /// That of the program that a stream runs.
    pub fn of(recording: &Recording, stream: StreamId) -> Result<Auxv, ReadError> {
        let Some(stack) = Stack::of(recording, stream)? else {
            return Ok(Auxv::default());
        };
        let mut auxv = Auxv {
            pairs: stack.auxv().unwrap_or_default(),
            executed: None,
        };
        let name = auxv.get(AT_EXECFN).and_then(|addr| stack.string(addr));
        auxv.executed = name.and_then(|name| String::from_utf8(name).ok());
        Ok(auxv)
    }

    pub fn get(&self, key: u64) -> Option<u64> {
        let found = self.pairs.iter().find(|(k, _)| *k == key);
        found.map(|(_, value)| *value)
    }

    /// As the kernel lays it out, with the end mark.
    pub fn bytes(&self) -> Vec<u8> {
        let words = self.pairs.iter().chain(&[(0, 0)]);
        words
            .flat_map(|(key, value)| [key.to_le_bytes(), value.to_le_bytes()])
            .flatten()
            .collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn made(pairs: &[(u64, u64)]) -> Auxv {
        Auxv {
            pairs: pairs.to_vec(),
            executed: None,
        }
    }
}
