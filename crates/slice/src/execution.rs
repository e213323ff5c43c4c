//! Execution slices: recordings in which only a slice is executed. In: a recording, and the gaps between the instructions of a
//! slice. Out: a log that has, for each gap, a leap over it, with what its instructions did to registers and memory; and where
//! each position is in that.
//!
//! All events stay as they are, so a replay still compares what the program does with what it did; all memory is what it was.

use std::path::Path;

use clew_recording::event::{self, Effect, Event, LONGEST_PIECE, REGISTERS, Record, StreamId};
use clew_recording::reader::Recording;
use clew_recording::rewrite::{Puts, rewrite};
use clew_timeline::{Looker, Position, Registers, Timeline};

use crate::gaps::Gap;
use crate::{Error, Result};

/// The leaps of an execution slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaps {
    /// From where to where, in the recording that it was made of; in order.
    all: Vec<(Position, Position)>,
    /// Instructions that aren't executed.
    pub left_out: u64,
    /// Bytes of memory that are put there instead.
    pub bytes: u64,
}

impl Leaps {
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Where a position is now; none if it is left out.
    pub fn moved(&self, old: Position) -> Option<Position> {
        let before = self.all.partition_point(|(_, to)| *to <= old);
        if self.all.get(before).is_some_and(|(from, _)| *from < old) {
            return None;
        }
        let last = before.checked_sub(1).map(|n| self.all[n].1);
        let (ticks, steps) = match last.filter(|to| to.event == old.event) {
            None => (old.ticks, old.steps),
            Some(to) if to.ticks == old.ticks => (0, old.steps - to.steps),
            Some(to) => (old.ticks - to.ticks, old.steps),
        };
        Some(Position {
            event: old.event + before as u64,
            ticks,
            steps,
        })
    }
}

/// rip and flags, of the registers of an effect.
const RIP: usize = 16;
const FLAGS: usize = 17;
/// The flag by which a thread single-steps itself.
const TRAP: u64 = 1 << 8;
/// Single instructions before an event that a replay makes.
const MOST_STEPS: u64 = 1 << 12;

/// Writes the log of an execution slice to a new file. `told` how far it has come, 0..=1.
pub fn write(
    timeline: &mut Timeline,
    recording: &Recording,
    gaps: &[Gap],
    file: &Path,
    told: &mut dyn FnMut(f64),
) -> Result<Leaps> {
    let stream = timeline.stream();
    let mut making = Making {
        looker: timeline.looker()?,
        gaps: gaps.iter().peekable(),
        leaps: Leaps::default(),
        failed: None,
    };
    let mut events = 0;
    let mut done = 0;
    rewrite(recording, file, &mut |of: StreamId, _, record, put| {
        if of != stream || making.failed.is_some() {
            put(record);
            return;
        }
        let Record::Event(event) = record else {
            put(record);
            return;
        };
        let nearer = match making.leaps_before(events, event, put) {
            Ok(passed) => event.nearer(passed),
            Err(error) => {
                making.failed = Some(error);
                None
            }
        };
        put(&Record::Event(nearer.unwrap_or_else(|| event.clone())));
        events += 1;
        let now = making.leaps.count();
        if now > done {
            done = now;
            told(now as f64 / gaps.len() as f64);
        }
    })?;
    match making.failed {
        Some(error) => Err(error),
        None => Ok(making.leaps),
    }
}

struct Making<'a> {
    looker: Looker,
    gaps: std::iter::Peekable<std::slice::Iter<'a, Gap>>,
    leaps: Leaps,
    failed: Option<Error>,
}

fn place(position: Position) -> Option<event::Place> {
    Some(event::Place {
        ticks: position.ticks,
        steps: u32::try_from(position.steps).ok()?,
    })
}

impl Making<'_> {
    /// Puts all leaps on the way to an event. How far they lead.
    fn leaps_before(&mut self, number: u64, event: &Event, put: Puts) -> Result<event::Place> {
        let mut passed = event::Place::default();
        while let Some(gap) = self.gaps.next_if(|gap| gap.to.event <= number) {
            let from = place(gap.from).map(|place| Event::Leap {
                place,
                left_out: gap.instructions,
            });
            let leap = from.as_ref().and_then(|leap| leap.nearer(passed));
            let (Some(leap), Some(to)) = (leap, place(gap.to)) else {
                continue;
            };
            // An event that it leads to has to be found from there.
            if gap.to.event != number
                || event.nearer(to).is_none()
                || u64::from(leap.place().steps) >= MOST_STEPS
            {
                continue;
            }
            if self.leap(gap, &leap, put)? {
                passed = to;
            }
        }
        Ok(passed)
    }

    /// Puts a leap and its effects, unless a thread single-steps itself there.
    fn leap(&mut self, gap: &Gap, leap: &Event, put: Puts) -> Result<bool> {
        self.looker.go(gap.from)?;
        let before = self.looker.registers()?;
        self.looker.go(gap.to)?;
        let after = self.looker.registers()?;
        if (before.words[FLAGS] | after.words[FLAGS]) & TRAP != 0 {
            return Ok(false);
        }
        put(&Record::Event(leap.clone()));
        put(&Record::Effect(changed(&before, &after)));
        if before.extended != after.extended {
            put(&Record::Effect(Effect::Extended(&after.extended)));
        }
        let mut bytes = vec![0; LONGEST_PIECE];
        for &(addr, len) in &gap.written {
            self.written(addr, len, &mut bytes, put)?;
        }
        self.leaps.all.push((gap.from, gap.to));
        self.leaps.left_out += gap.instructions;
        Ok(true)
    }

    /// Puts the memory there; of what an instruction may have written not all need be there.
    fn written(&mut self, addr: u64, len: u64, bytes: &mut [u8], put: Puts) -> Result<()> {
        let mut done = 0;
        while done < len {
            let at = addr + done;
            let wanted = (len - done).min(bytes.len() as u64) as usize;
            let read = self.looker.read(at, &mut bytes[..wanted])?;
            if read > 0 {
                self.leaps.bytes += read as u64;
                put(&Record::Effect(Effect::Memory {
                    addr: at,
                    bytes: &bytes[..read],
                }));
            }
            if read < wanted {
                break;
            }
            done += read as u64;
        }
        Ok(())
    }
}

/// Flags that nobody reads any more may differ by how a place was reached, so they are always told.
fn changed(before: &Registers, after: &Registers) -> Effect<'static> {
    let mut mask = 1 << RIP | 1 << FLAGS;
    let mut values = [0; REGISTERS];
    for n in 0..REGISTERS {
        if before.words[n] != after.words[n] {
            mask |= 1 << n;
        }
    }
    for n in (0..REGISTERS).filter(|n| mask >> n & 1 != 0) {
        values[n] = after.words[n];
    }
    Effect::Registers { mask, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(event: u64, ticks: u64, steps: u64) -> Position {
        Position {
            event,
            ticks,
            steps,
        }
    }

    #[test]
    fn positions_behind_leaps() {
        let leaps = Leaps {
            all: vec![
                (at(3, 0, 2), at(3, 4, 1)),
                (at(3, 4, 3), at(3, 6, 0)),
                (at(5, 0, 0), at(5, 1, 1)),
            ],
            ..Leaps::default()
        };
        assert_eq!(leaps.moved(at(2, 9, 9)), Some(at(2, 9, 9)));
        assert_eq!(leaps.moved(at(3, 0, 2)), Some(at(3, 0, 2)));
        assert_eq!(leaps.moved(at(3, 1, 0)), None);
        assert_eq!(leaps.moved(at(3, 4, 1)), Some(at(4, 0, 0)));
        assert_eq!(leaps.moved(at(3, 4, 3)), Some(at(4, 0, 2)));
        assert_eq!(leaps.moved(at(3, 6, 2)), Some(at(5, 0, 2)));
        assert_eq!(leaps.moved(at(3, 7, 2)), Some(at(5, 1, 2)));
        assert_eq!(leaps.moved(at(4, 7, 2)), Some(at(6, 7, 2)));
        assert_eq!(leaps.moved(at(5, 1, 1)), Some(at(8, 0, 0)));
    }
}
