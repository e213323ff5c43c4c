//! How a way is divided into stretches, and what a question begins with.

use crate::cells::Cells;
use crate::live::{Live, Who};
use crate::origin::Value;

/// The work of each stretch: the first one short, so that what lies near is found at once, each further one some times as
/// long, up to a limit that keeps its trace small.
pub struct Lengths {
    next: u64,
    longest: u64,
}

const FIRST: u64 = 20_000;
const GROWTH: u64 = 4;
const LONGEST: u64 = 4_000_000;
/// All that happened in it is kept, to be looked at the other way round.
const LONGEST_FORWARDS: u64 = 500_000;

impl Lengths {
    pub fn backwards() -> Lengths {
        Lengths {
            next: FIRST,
            longest: LONGEST,
        }
    }

    pub fn forwards() -> Lengths {
        Lengths {
            next: FIRST,
            longest: LONGEST_FORWARDS,
        }
    }

    pub fn next(&mut self) -> u64 {
        let now = self.next;
        self.next = (now * GROWTH).min(self.longest);
        now
    }

    /// The next one, if it won't grow any more: then it is likely to be wanted, and worth being traced ahead.
    pub fn next_if_longest(&mut self) -> Option<u64> {
        (self.next == self.longest).then(|| self.next())
    }
}

/// These values count.
pub fn ask(live: &mut Live, values: &[Value], who: Who) {
    for value in values {
        match value {
            Value::Register {
                thread,
                register,
                bytes,
            } => {
                let mask = (1u64 << bytes.end) - (1 << bytes.start);
                let cells = Cells::some_of(*register, mask as u32);
                live.add_cells(u64::from(*thread), &cells, who);
            }
            Value::Memory { addr, len } => live.add(*addr, *len, who),
        }
    }
}
