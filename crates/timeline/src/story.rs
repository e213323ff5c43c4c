//! What the log says without being replayed. In: a stream's events. Out: who ran when, where each
//! event lies, and whether a thread did something by it.
//!
//! Read on as far as somebody asks, and kept: eight bytes for each event.

use clew_recording::event::{Deed, Event, Place, Record, ThreadId};
use clew_recording::reader::StreamReader;

use crate::{Error, Position, Result};

const TICKS: u32 = 44;
const STEPS: u32 = 16;

/// An event's deed and place, in one word.
#[derive(Clone, Copy)]
struct Packed(u64);

impl Packed {
    fn new(deed: Deed, place: Place) -> Option<Packed> {
        let fits = place.ticks < 1 << TICKS && place.steps < 1 << STEPS;
        let word = (deed as u64) << (TICKS + STEPS) | (place.steps as u64) << TICKS | place.ticks;
        fits.then_some(Packed(word))
    }

    fn place(self) -> Place {
        Place {
            ticks: self.0 & ((1 << TICKS) - 1),
            steps: (self.0 >> TICKS) as u32 & ((1 << STEPS) - 1),
        }
    }

    fn deed(self) -> Deed {
        match self.0 >> (TICKS + STEPS) {
            0 => Deed::Whole,
            1 => Deed::Begun,
            2 => Deed::Finished,
            3 => Deed::Switch,
            4 => Deed::None,
            _ => Deed::Silent,
        }
    }
}

/// Part of the life of one thread, between two switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// It runs when so many events are done.
    from: u64,
    thread: ThreadId,
}

#[derive(Clone)]
pub struct Story {
    /// Nothing was read by this one.
    beginning: StreamReader,
    reader: StreamReader,
    /// Event n (from 1) at n - 1.
    events: Vec<Packed>,
    turns: Vec<Turn>,
    over: bool,
}

impl Story {
    pub fn new(reader: StreamReader) -> Story {
        Story {
            beginning: reader.clone(),
            reader,
            events: Vec::new(),
            turns: vec![Turn { from: 0, thread: 0 }],
            over: false,
        }
    }

    /// Reads until so many events are known, or all.
    fn read_to(&mut self, event: u64) {
        while !self.over && (self.events.len() as u64) < event {
            self.read_one();
        }
    }

    fn read_one(&mut self) {
        let number = self.events.len() as u64 + 1;
        let event = match self.reader.next_in_place() {
            Ok(Some(Record::Effect(_))) => return,
            Ok(Some(Record::Event(event))) => event,
            // What can't be read isn't replayed either.
            Ok(None) | Err(_) => {
                self.over = true;
                return;
            }
        };
        let (deed, place) = event.lies();
        if let Event::Switched { to, .. } = event {
            self.turns.push(Turn {
                from: number,
                thread: *to,
            });
        }
        match Packed::new(deed, place) {
            Some(packed) => self.events.push(packed),
            // Made up: nothing is replayed that far.
            None => self.over = true,
        }
    }

    /// The stream from its first event on.
    pub fn beginning(&self) -> StreamReader {
        self.beginning.clone()
    }

    /// The number of the event that makes the second thread, if there is one.
    pub fn second_thread(&self) -> Result<Option<u64>> {
        let mut reader = self.beginning();
        loop {
            let record = reader.next_in_place();
            match record.map_err(|error| Error::Refused(error.to_string()))? {
                None => return Ok(None),
                Some(Record::Event(Event::NewThread { .. })) => return Ok(Some(reader.position())),
                Some(_) => {}
            }
        }
    }

    /// Event n (from 1): what it is, and where after the one before it.
    pub fn event(&mut self, number: u64) -> Result<Option<(Deed, Place)>> {
        self.read_to(number);
        let index = number.checked_sub(1).map(|n| n as usize);
        let packed = index.and_then(|n| self.events.get(n));
        Ok(packed.map(|packed| (packed.deed(), packed.place())))
    }

    /// Who runs when so many events are done.
    pub fn runs(&mut self, event: u64) -> Result<ThreadId> {
        self.read_to(event);
        let index = self.turns.partition_point(|turn| turn.from <= event);
        Ok(self.turns[index - 1].thread)
    }

    /// The first event, behind so many, after which that thread runs.
    pub fn next_turn(&mut self, event: u64, thread: ThreadId) -> Result<Option<u64>> {
        self.read_to(event);
        let mut index = self.turns.partition_point(|turn| turn.from <= event);
        loop {
            while let Some(turn) = self.turns.get(index) {
                if turn.thread == thread {
                    return Ok(Some(turn.from));
                }
                index += 1;
            }
            if self.over {
                return Ok(None);
            }
            self.read_one();
        }
    }

    /// The last number of events, below this one, with which that thread ran: its switch away, or
    /// whatever ended its stretch, is the next event.
    pub fn last_turn(&mut self, event: u64, thread: ThreadId) -> Result<Option<u64>> {
        self.read_to(event);
        let index = self.turns.partition_point(|turn| turn.from < event);
        let mut end = event;
        for turn in self.turns[..index].iter().rev() {
            if turn.thread == thread {
                return Ok(end.checked_sub(1));
            }
            end = turn.from;
        }
        Ok(None)
    }

    /// Whether one thread gave way to another between these numbers of events.
    pub fn turned(&mut self, from: u64, to: u64) -> Result<bool> {
        self.read_to(to);
        let index = self.turns.partition_point(|turn| turn.from <= from);
        Ok(self.turns.get(index).is_some_and(|turn| turn.from <= to))
    }

    /// The position after so many ticks of all threads.
    pub fn after_ticks(&mut self, ticks: u64) -> Result<Position> {
        let mut left = ticks;
        let mut number = 1;
        while let Some((_, place)) = self.event(number)? {
            if left < place.ticks {
                return Ok(Position {
                    event: number - 1,
                    ticks: left,
                    steps: 0,
                });
            }
            left -= place.ticks;
            number += 1;
            if left == 0 {
                // Behind the event: that is where the tick is over for good.
                let next = self.event(number)?;
                if next.is_none_or(|(_, place)| place.ticks > 0) {
                    break;
                }
            }
        }
        Ok(Position {
            event: number - 1,
            ticks: left,
            steps: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_and_back() {
        for deed in [
            Deed::Whole,
            Deed::Begun,
            Deed::Finished,
            Deed::Switch,
            Deed::None,
            Deed::Silent,
        ] {
            let place = Place {
                ticks: (1 << TICKS) - 1,
                steps: 4097,
            };
            let packed = Packed::new(deed, place).unwrap();
            assert_eq!((packed.deed(), packed.place()), (deed, place));
        }
        let far = Place {
            ticks: 1 << TICKS,
            steps: 0,
        };
        assert!(Packed::new(Deed::Whole, far).is_none());
    }
}
