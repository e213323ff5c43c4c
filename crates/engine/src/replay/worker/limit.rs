//! Where the replay stops being what was recorded. In: the last event that agreed, told by who commands. Out: a stream
//! that ends there, so that everything before can be looked at.
//!
//! The thread goes on from that event as far as it does without the next one: to where that would be due, or to
//! the first thing that it does otherwise.

use clew_recording::event::Record;
use clew_recording::reader::{ReadError, StreamReader};

use super::protocol::{Diverged, Limit};
use super::serve::Worker;
use super::travel::{Done, Halt};
use crate::replay::Divergence;
use crate::replay::approach::Stepped;

/// The next record; none where the log can't be read any further, once that is known.
pub(super) fn ahead<'a>(
    reader: &'a mut StreamReader,
    limit: &Option<Limit>,
) -> Result<Option<&'a Record<'a>>, ReadError> {
    match limit {
        Some(limit) if limit.unreadable && reader.position() >= limit.event => Ok(None),
        _ => reader.peek(),
    }
}

impl Worker {
    /// All that agreed is done: the next event isn't to be applied.
    pub(super) fn at_limit(&self) -> bool {
        let done = self.reader.position();
        self.limit.is_some_and(|limit| done >= limit.event)
    }

    /// Nothing more can be executed before the event at which it diverges.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked && self.at_limit()
    }

    pub(super) fn set_limit(&mut self, limit: Limit) {
        self.limit = Some(limit);
        self.last = None;
    }

    /// Whether the instruction that the thread stands on is the next event's, where that can be told.
    pub(super) fn looks_due(&mut self) -> Done<bool> {
        if self.is_blocked() {
            return Ok(true);
        }
        let Some(Record::Event(event)) = ahead(&mut self.reader, &self.limit)? else {
            return Ok(true);
        };
        match self.machine.look_ahead(event) {
            Err(_) if self.at_limit() => {
                self.blocked = true;
                Ok(true)
            }
            found => Ok(found?),
        }
    }

    /// One instruction, if it isn't the event's. At the limit, what the program does otherwise than recorded is where
    /// it stands from then on.
    pub(super) fn single(&mut self) -> Done<Stepped> {
        if self.is_blocked() {
            return Ok(Stepped::Due);
        }
        let Some(Record::Event(event)) = ahead(&mut self.reader, &self.limit)? else {
            return Ok(Stepped::Due);
        };
        let before = self.machine.since();
        let stepped = match self.machine.single(event) {
            Err(_) if self.at_limit() => {
                self.blocked = true;
                if self.machine.since() != before {
                    self.steps = Some(0);
                }
                return Ok(Stepped::Due);
            }
            stepped => stepped?,
        };
        if let Stepped::Moved { ticked } = stepped {
            self.steps = match ticked {
                true => Some(0),
                false => self.steps.map(|steps| steps + 1),
            };
        }
        Ok(stepped)
    }

    /// What to tell about a divergence.
    pub(super) fn diverged(&self, halt: Halt) -> Result<Diverged, String> {
        let (expected, found, unreadable) = match halt {
            Halt::Refused(why) => return Err(why),
            Halt::Unreadable(why) => ("a readable recording".into(), why, true),
            Halt::Diverged(Divergence {
                expected, found, ..
            }) => (expected, found, false),
        };
        let (pc, sp) = self.machine.place_now();
        let applying = self.reader.position() != self.whole;
        Ok(Diverged {
            stream: self.reader.stream(),
            event: self.whole,
            // An effect: its event was due, which is as far as one gets.
            ticks: (!applying).then(|| self.machine.since()),
            thread: self.machine.current,
            pc,
            sp,
            expected,
            found,
            unreadable,
        })
    }
}
