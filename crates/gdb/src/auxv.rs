//! What the kernel told the program at its start. In: the first effects of a stream that begins with an
//! exec. Out: the auxiliary vector, which gdb needs to find the program and its loader.

use clew_recording::event::{Effect, Event, Origin, Record, StreamId};
use clew_recording::reader::{ReadError, Recording};

pub const AT_PHDR: u64 = 3;
pub const AT_PHNUM: u64 = 5;
pub const AT_BASE: u64 = 7;
pub const AT_ENTRY: u64 = 9;

const RSP: usize = 4;
/// Arguments and environment are fewer: the kernel allows 2 MiB of them at least, of which each takes some.
const MOST_WORDS: u64 = 4 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auxv {
    pairs: Vec<(u64, u64)>,
}

impl Auxv {
    /// That of the program that a stream runs: of the exec that it, or an ancestor of its, began with.
    pub fn of(recording: &Recording, mut stream: StreamId) -> Result<Auxv, ReadError> {
        loop {
            let mut reader = recording.stream(stream)?;
            let Some(Record::Event(Event::Started(start))) = reader.next()? else {
                return Ok(Auxv::default());
            };
            match start.origin {
                // Parents have smaller numbers: no circle.
                Origin::Fork { parent } if parent < stream => {
                    stream = parent;
                    continue;
                }
                Origin::Fork { .. } => return Ok(Auxv::default()),
                Origin::Exec { .. } => {}
            }
            let mut stack = Stack::default();
            while let Some(effect) = reader.next_effect()? {
                match effect {
                    Effect::Memory { addr, bytes } => stack.pieces.push((addr, bytes.to_vec())),
                    Effect::Registers { mask, values } if mask >> RSP & 1 != 0 => {
                        stack.top = values[RSP];
                    }
                    _ => {}
                }
            }
            return Ok(stack.auxv().unwrap_or_default());
        }
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

/// The stack as exec makes it: argc, argv, 0, envp, 0, auxv.
#[derive(Default)]
struct Stack {
    top: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Stack {
    fn word(&self, addr: u64) -> Option<u64> {
        let byte = |addr: u64| {
            let piece = self.pieces.iter().rev();
            let mut found = piece.filter_map(|(start, bytes)| {
                bytes.get(usize::try_from(addr.checked_sub(*start)?).ok()?)
            });
            found.next().copied()
        };
        // Nearly always all of it is in one piece.
        let mut word = [0; 8];
        for (n, place) in word.iter_mut().enumerate() {
            *place = byte(addr.checked_add(n as u64)?)?;
        }
        Some(u64::from_le_bytes(word))
    }

    fn auxv(&self) -> Option<Auxv> {
        let argc = self.word(self.top)?;
        if argc > MOST_WORDS {
            return None;
        }
        // argc itself, the arguments and their 0.
        let mut at = self.top.checked_add(8 * (argc + 2))?;
        let end = at.checked_add(8 * MOST_WORDS)?;
        while self.word(at)? != 0 {
            at += 8;
            if at > end {
                return None;
            }
        }
        at += 8;
        let mut pairs = Vec::new();
        loop {
            let (key, value) = (self.word(at)?, self.word(at + 8)?);
            if key == 0 || pairs.len() > 100 {
                return Some(Auxv { pairs });
            }
            pairs.push((key, value));
            at += 16;
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn made(pairs: &[(u64, u64)]) -> Auxv {
        Auxv {
            pairs: pairs.to_vec(),
        }
    }

    #[test]
    fn found_behind_arguments_and_environment() {
        let words: [u64; 10] = [2, 0x100, 0x110, 0, 0x120, 0, AT_PHDR, 0x40_0040, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (one, two) = bytes.split_at(30);
        let mut stack = Stack {
            top: 0x1000,
            pieces: vec![(0x1000, one.to_vec()), (0x1000 + 30, two.to_vec())],
        };
        let auxv = stack.auxv().unwrap();
        assert_eq!(auxv.get(AT_PHDR), Some(0x40_0040));
        assert_eq!(auxv.get(AT_BASE), None);
        assert_eq!(auxv.bytes().len(), 32);
        // A stranger's, without an end.
        stack.pieces.truncate(1);
        assert_eq!(stack.auxv(), None);
        stack.top = u64::MAX - 4;
        assert_eq!(stack.auxv(), None);
    }
}
