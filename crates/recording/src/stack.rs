//! The stack that a program was started with. In: the first effects of a stream that begins with an exec. Out: its
//! arguments, its environment and what the kernel told it (the auxiliary vector).

use crate::event::{Effect, Event, Origin, Record, StreamId};
use crate::reader::{ReadError, Recording};

const RSP: usize = 4;
/// Arguments and environment are fewer: the kernel allows 2 MiB of them at least, of which each takes some.
const MOST_WORDS: u64 = 4 << 20;
const MOST_PAIRS: usize = 100;

/// The stack as exec makes it: argc, argv, 0, envp, 0, auxv.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    top: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Stack {
    /// Of the program that a stream runs: of the exec that it, or an ancestor of its, began with. `None` for a made-up
    /// recording that says nothing of it.
    pub fn of(recording: &Recording, mut stream: StreamId) -> Result<Option<Stack>, ReadError> {
        loop {
            let mut reader = recording.stream(stream)?;
            let Some(Record::Event(Event::Started(start))) = reader.next()? else {
                return Ok(None);
            };
            match start.origin {
                // Parents have smaller numbers: no circle.
                Origin::Fork { parent } if parent < stream => {
                    stream = parent;
                    continue;
                }
                Origin::Fork { .. } | Origin::Midst { stack: 0, .. } => return Ok(None),
                Origin::Exec { .. } | Origin::Midst { .. } => {}
            }
            let mut stack = Stack::default();
            // In the midst, as it is there by now, among all of the process's memory.
            let mut all = 0..u64::MAX;
            if let Origin::Midst { stack: top, .. } = start.origin {
                stack.top = top;
                all = top..top.saturating_add(8 * MOST_WORDS);
            }
            while let Some(effect) = reader.next_effect()? {
                match effect {
                    Effect::Memory { addr, bytes }
                        if addr < all.end
                            && addr.saturating_add(bytes.len() as u64) > all.start =>
                    {
                        stack.pieces.push((addr, bytes.to_vec()));
                    }
                    Effect::Registers { mask, values } if mask >> RSP & 1 != 0 => {
                        stack.top = values[RSP];
                    }
                    _ => {}
                }
            }
            return Ok(Some(stack));
        }
    }

    /// Where it begins: at the number of arguments.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Of these pieces of memory.
    #[cfg(test)]
    pub fn made(top: u64, pieces: Vec<(u64, Vec<u8>)>) -> Stack {
        Stack { top, pieces }
    }

    fn from(&self, addr: u64) -> Option<&[u8]> {
        self.pieces.iter().rev().find_map(|(start, bytes)| {
            let at = usize::try_from(addr.checked_sub(*start)?).ok()?;
            bytes.get(at..).filter(|rest| !rest.is_empty())
        })
    }

    fn word(&self, addr: u64) -> Option<u64> {
        // Nearly always all of it is in one piece.
        if let Some(bytes) = self.from(addr)?.first_chunk::<8>() {
            return Some(u64::from_le_bytes(*bytes));
        }
        let mut word = [0; 8];
        for (n, place) in word.iter_mut().enumerate() {
            *place = *self.from(addr.checked_add(n as u64)?)?.first()?;
        }
        Some(u64::from_le_bytes(word))
    }

    /// What is there up to a 0; pieces that follow each other are one.
    pub fn string(&self, addr: u64) -> Option<Vec<u8>> {
        let mut string = Vec::new();
        loop {
            let rest = self.from(addr.checked_add(string.len() as u64)?)?;
            match rest.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    string.extend_from_slice(&rest[..end]);
                    return Some(string);
                }
                None => string.extend_from_slice(rest),
            }
        }
    }

    /// The pointers from `at` to the next 0, and what is behind that.
    fn pointers(&self, mut at: u64) -> Option<(Vec<u64>, u64)> {
        let mut all = Vec::new();
        loop {
            let addr = self.word(at)?;
            at = at.checked_add(8)?;
            if addr == 0 {
                return Some((all, at));
            }
            if all.len() as u64 > MOST_WORDS {
                return None;
            }
            all.push(addr);
        }
    }

    /// Where the environment begins.
    fn environment_at(&self) -> Option<u64> {
        let argc = self.word(self.top)?;
        if argc > MOST_WORDS {
            return None;
        }
        // argc itself, the arguments and their 0.
        self.top.checked_add(8 * (argc + 2))
    }

    /// Where the variables of the environment are, each a `NAME=value`.
    pub fn environment(&self) -> Option<Vec<u64>> {
        let (all, _) = self.pointers(self.environment_at()?)?;
        Some(all)
    }

    /// The auxiliary vector, without its end mark.
    pub fn auxv(&self) -> Option<Vec<(u64, u64)>> {
        let (_, mut at) = self.pointers(self.environment_at()?)?;
        let mut pairs = Vec::new();
        loop {
            let (key, value) = (self.word(at)?, self.word(at.checked_add(8)?)?);
            if key == 0 || pairs.len() > MOST_PAIRS {
                return Some(pairs);
            }
            pairs.push((key, value));
            at = at.checked_add(16)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_behind_arguments_and_environment() {
        let words: [u64; 10] = [2, 0x100, 0x110, 0, 0x120, 0, 3, 0x40_0040, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // Cut inside of a word.
        let (one, two) = bytes.split_at(30);
        let pieces = vec![(0x1000, one.to_vec()), (0x1000 + 30, two.to_vec())];
        let mut stack = Stack::made(0x1000, pieces);
        assert_eq!(stack.environment(), Some(vec![0x120]));
        assert_eq!(stack.auxv(), Some(vec![(3, 0x40_0040)]));
        // A stranger's, without an end.
        stack.pieces.truncate(1);
        assert_eq!(stack.auxv(), None);
        stack.top = u64::MAX - 4;
        assert_eq!(stack.auxv(), None);
    }
}
