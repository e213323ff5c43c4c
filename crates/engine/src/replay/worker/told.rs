//! What an observer tells of interactions, one after the other, in words. In: what happened. Out: words that stay
//! together, and the same again from them.
//!
//! Whoever reads trusts nothing: a worker may be a stranger's to the last instruction.

use std::ops::Range;

use clew_recording::event::ThreadId;

use super::protocol::Mark;

/// Something that a thread did, in the order of the stream. Its mark tells how many events were done before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It stands at the first instruction of a function.
    Called {
        thread: ThreadId,
        /// Number among those that were asked for.
        function: u32,
        at: Mark,
        /// The return address.
        back: u64,
        arguments: [u64; 4],
    },
    /// It stands behind the call.
    Returned {
        thread: ThreadId,
        function: u32,
        at: Mark,
        rax: u64,
        /// What stands where the first argument pointed to; 0 if it can't be read.
        pointed: u64,
    },
    /// A long jump, an exception or the thread's end has left the call.
    Left {
        thread: ThreadId,
        function: u32,
        event: u64,
    },
    /// It is about to touch memory.
    Access {
        thread: ThreadId,
        at: Mark,
        addr: u64,
        len: u64,
        read: bool,
        write: bool,
        /// Atomic for other processors, too.
        locked: bool,
        /// What stands there before it, up to eight bytes; told if every access is asked for.
        value: Option<u64>,
    },
    /// Memory was mapped there, or became a new thread's stack: what was there before was other memory.
    Renewed { event: u64, range: Range<u64> },
}

const CALLED: u64 = 1;
const RETURNED: u64 = 2;
const LEFT: u64 = 3;
const ACCESS: u64 = 4;
const RENEWED: u64 = 5;

const READ: u64 = 1;
const WRITE: u64 = 2;
const LOCKED: u64 = 4;
const VALUE: u64 = 8;

/// The first word: how many follow, what it is, details, and whose it is.
fn head(kind: u64, words: usize, flags: u64, thread: ThreadId) -> u64 {
    kind | (words as u64) << 8 | flags << 16 | u64::from(thread) << 32
}

impl Told {
    /// Events done when it happened.
    pub fn event(&self) -> u64 {
        match self {
            Told::Called { at, .. } | Told::Returned { at, .. } | Told::Access { at, .. } => {
                at.event
            }
            Told::Left { event, .. } | Told::Renewed { event, .. } => *event,
        }
    }

    pub fn words(&self, out: &mut Vec<u64>) {
        out.clear();
        let (kind, flags, who) = match self {
            Told::Called {
                thread,
                function,
                at,
                back,
                arguments,
            } => {
                out.extend([0, u64::from(*function), at.event, at.ticks, at.pc, at.sp]);
                out.push(*back);
                out.extend(arguments);
                (CALLED, 0, *thread)
            }
            Told::Returned {
                thread,
                function,
                at,
                rax,
                pointed,
            } => {
                out.extend([0, u64::from(*function), at.event, at.ticks, at.pc, at.sp]);
                out.extend([*rax, *pointed]);
                (RETURNED, 0, *thread)
            }
            Told::Left {
                thread,
                function,
                event,
            } => {
                out.extend([0, u64::from(*function), *event]);
                (LEFT, 0, *thread)
            }
            Told::Access {
                thread,
                at,
                addr,
                len,
                read,
                write,
                locked,
                value,
            } => {
                out.extend([0, *addr, *len, at.event, at.ticks, at.pc, at.sp]);
                out.push(value.unwrap_or(0));
                let flags = (u64::from(*read) * READ)
                    | (u64::from(*write) * WRITE)
                    | (u64::from(*locked) * LOCKED)
                    | (u64::from(value.is_some()) * VALUE);
                (ACCESS, flags, *thread)
            }
            Told::Renewed { event, range } => {
                out.extend([0, *event, range.start, range.end]);
                (RENEWED, 0, 0)
            }
        };
        out[0] = head(kind, out.len() - 1, flags, who);
    }

    /// The first of these, and how many words it took; none where they make no sense.
    pub fn read(words: &[u64]) -> Option<(Told, usize)> {
        let (&first, rest) = words.split_first()?;
        let count = (first >> 8 & 0xff) as usize;
        let payload = rest.get(..count)?;
        let thread = (first >> 32) as ThreadId;
        let flags = first >> 16 & 0xffff;
        let mark = |words: &[u64]| Mark {
            event: words[0],
            ticks: words[1],
            pc: words[2],
            sp: words[3],
        };
        let told = match (first & 0xff, count) {
            (CALLED, 10) => Told::Called {
                thread,
                function: u32::try_from(payload[0]).ok()?,
                at: mark(&payload[1..5]),
                back: payload[5],
                arguments: payload[6..10].try_into().ok()?,
            },
            (RETURNED, 7) => Told::Returned {
                thread,
                function: u32::try_from(payload[0]).ok()?,
                at: mark(&payload[1..5]),
                rax: payload[5],
                pointed: payload[6],
            },
            (LEFT, 2) => Told::Left {
                thread,
                function: u32::try_from(payload[0]).ok()?,
                event: payload[1],
            },
            (ACCESS, 7) => Told::Access {
                thread,
                addr: payload[0],
                len: payload[1],
                at: mark(&payload[2..6]),
                read: flags & READ != 0,
                write: flags & WRITE != 0,
                locked: flags & LOCKED != 0,
                value: (flags & VALUE != 0).then_some(payload[6]),
            },
            (RENEWED, 3) => Told::Renewed {
                event: payload[0],
                range: payload[1]..payload[2],
            },
            _ => return None,
        };
        Some((told, count + 1))
    }

    /// All of a segment; none where it makes no sense.
    pub fn read_all(segment: &[u8]) -> Option<Vec<Told>> {
        let (words, rest) = segment.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (mut all, mut at) = (Vec::new(), 0);
        while at < words.len() {
            let (told, count) = Told::read(&words[at..])?;
            all.push(told);
            at += count;
        }
        rest.is_empty().then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_and_read_again() {
        let at = Mark {
            event: 7,
            ticks: 1 << 40,
            pc: 0x1000_1234,
            sp: 0x3fff_ffff_0000,
        };
        let all = [
            Told::Called {
                thread: 3,
                function: 12,
                at,
                back: 0x1000_2222,
                arguments: [1, u64::MAX, 3, 4],
            },
            Told::Returned {
                thread: u32::MAX,
                function: 0,
                at,
                rax: u64::MAX,
                pointed: 9,
            },
            Told::Left {
                thread: 1,
                function: 2,
                event: 3,
            },
            Told::Access {
                thread: 2,
                at,
                addr: u64::MAX,
                len: 16,
                read: true,
                write: false,
                locked: true,
                value: Some(u64::MAX - 1),
            },
            Told::Renewed {
                event: 8,
                range: 16..32,
            },
        ];
        let (mut words, mut bytes) = (Vec::new(), Vec::new());
        for told in &all {
            told.words(&mut words);
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        assert_eq!(Told::read_all(&bytes).as_deref(), Some(&all[..]));
        // Whatever is cut or changed is told apart, or is something else: never a panic.
        for cut in 0..bytes.len() {
            let _ = Told::read_all(&bytes[..cut]);
            let mut changed = bytes.clone();
            changed[cut] ^= 0xff;
            let _ = Told::read_all(&changed);
        }
        assert_eq!(Told::read_all(&[1; 9]), None);
    }
}
