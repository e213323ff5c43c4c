//! The lives of a process's threads, taken apart. In: a stream's log. Out: what each thread did, one stretch after the other,
//! from where there is a second thread to the end; and the events themselves, to be written in another order.
//!
//! A *stretch* is what one thread runs between two events of the log, and the event that it comes to. Places are counted from
//! the thread's own last event, over all switches in between: so they don't depend on when it had to give way.

use std::collections::BTreeMap;

use clew_recording::borrowers::Borrowers;
use clew_recording::event::{Effect, Event, Place, REGISTERS, Record, ThreadId};
use clew_recording::reader::StreamReader;

use crate::reorder::Refused;

/// More bytes of effects aren't kept in memory.
const MOST_BYTES: u64 = 1 << 30;

/// Where a thread is: ticks since its last event, and single instructions since that tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    pub ticks: u64,
    pub steps: u32,
}

impl Spot {
    /// So much further on. Single instructions are counted from the last tick.
    pub fn on(self, place: Place) -> Spot {
        match place.ticks {
            0 => Spot {
                ticks: self.ticks,
                steps: self.steps.saturating_add(place.steps),
            },
            ticks => Spot {
                ticks: self.ticks.saturating_add(ticks),
                steps: place.steps,
            },
        }
    }

    /// How far it is from a spot before it.
    pub fn from(self, start: Spot) -> Place {
        match self.ticks.saturating_sub(start.ticks) {
            0 => Place {
                ticks: 0,
                steps: self.steps.saturating_sub(start.steps),
            },
            ticks => Place {
                ticks,
                steps: self.steps,
            },
        }
    }
}

/// An event with its effects.
pub struct Kept {
    /// What it carries is in `bytes`.
    event: Event<'static>,
    bytes: Box<[u8]>,
    pub effects: Vec<KeptEffect>,
}

pub enum KeptEffect {
    Memory { addr: u64, bytes: Box<[u8]> },
    Registers(u32, Box<[u64; REGISTERS]>),
    Extended(Box<[u8]>),
    Map(Box<[u8]>),
    Output { order: u64, bytes: u64 },
}

impl KeptEffect {
    fn of(effect: &Effect) -> KeptEffect {
        match *effect {
            Effect::Memory { addr, bytes } => KeptEffect::Memory {
                addr,
                bytes: bytes.into(),
            },
            Effect::Registers { mask, values } => KeptEffect::Registers(mask, Box::new(values)),
            Effect::Extended(bytes) => KeptEffect::Extended(bytes.into()),
            Effect::Map(bytes) => KeptEffect::Map(bytes.into()),
            Effect::Output { order, bytes } => KeptEffect::Output { order, bytes },
        }
    }

    pub fn effect(&self) -> Effect<'_> {
        match self {
            KeptEffect::Memory { addr, bytes } => Effect::Memory { addr: *addr, bytes },
            KeptEffect::Registers(mask, values) => Effect::Registers {
                mask: *mask,
                values: **values,
            },
            KeptEffect::Extended(bytes) => Effect::Extended(bytes),
            KeptEffect::Map(bytes) => Effect::Map(bytes),
            KeptEffect::Output { order, bytes } => Effect::Output {
                order: *order,
                bytes: *bytes,
            },
        }
    }

    fn size(&self) -> u64 {
        match self {
            KeptEffect::Memory { bytes, .. }
            | KeptEffect::Extended(bytes)
            | KeptEffect::Map(bytes) => bytes.len() as u64,
            _ => REGISTERS as u64 * 8,
        }
    }
}

impl Kept {
    fn of(event: &Event) -> Kept {
        let (bytes, event): (&[u8], _) = match *event {
            Event::Signal {
                place,
                cause,
                signo,
                info,
            } => {
                let event = Event::Signal {
                    place,
                    cause,
                    signo,
                    info: &[],
                };
                (info, event)
            }
            Event::Values(bytes) => (bytes, Event::Values(&[])),
            Event::Note(text) => (text.as_bytes(), Event::Note("")),
            Event::Started(ref start) => (&[], Event::Started(start.clone())),
            Event::Deadlock(ref waiters) => (&[], Event::Deadlock(waiters.clone())),
            Event::Call(call) => (&[], Event::Call(call)),
            Event::Resumed { result, by } => (&[], Event::Resumed { result, by }),
            Event::Instruction { ticks, what } => (&[], Event::Instruction { ticks, what }),
            Event::Shared { ticks, touch } => (&[], Event::Shared { ticks, touch }),
            Event::Switched { place, to } => (&[], Event::Switched { place, to }),
            Event::NewThread { thread, tid } => (&[], Event::NewThread { thread, tid }),
            Event::EndedThread { thread } => (&[], Event::EndedThread { thread }),
            Event::Forked { ticks, stream, pid } => (&[], Event::Forked { ticks, stream, pid }),
            Event::Check {
                place,
                registers,
                memory,
            } => {
                let event = Event::Check {
                    place,
                    registers,
                    memory,
                };
                (&[], event)
            }
            Event::Leap { place, left_out } => (&[], Event::Leap { place, left_out }),
            Event::State { ticks, waits, .. } => {
                let name = &[];
                (&[], Event::State { ticks, name, waits })
            }
            Event::Exec { ticks } => (&[], Event::Exec { ticks }),
            Event::Exited { ticks, status } => (&[], Event::Exited { ticks, status }),
            Event::Killed {
                place,
                cause,
                signo,
            } => {
                let event = Event::Killed {
                    place,
                    cause,
                    signo,
                };
                (&[], event)
            }
            Event::Time(time) => (&[], Event::Time(time)),
        };
        Kept {
            event,
            bytes: bytes.into(),
            effects: Vec::new(),
        }
    }

    /// The event as it was.
    pub fn event(&self) -> Event<'_> {
        match &self.event {
            Event::Signal {
                place,
                cause,
                signo,
                ..
            } => Event::Signal {
                place: *place,
                cause: *cause,
                signo: *signo,
                info: &self.bytes,
            },
            Event::Values(_) => Event::Values(&self.bytes),
            Event::Note(_) => Event::Note(std::str::from_utf8(&self.bytes).unwrap_or_default()),
            other => other.clone(),
        }
    }
}

/// What a thread runs between two events, and the one that it comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub thread: ThreadId,
    /// The number of the event that ends it: so many are done as long as it runs.
    pub event: u64,
    /// Events that happen together with the one before it: none of them is anywhere.
    pub silent: Vec<u64>,
    pub start: Spot,
    pub end: Spot,
    /// Answers of time calls are among the silent ones: it can't be parted.
    pub whole: bool,
    /// It ends because another thread goes on.
    pub switched: bool,
}

/// All that happens from the second thread's making on.
pub struct Lives {
    /// So many events are before that.
    pub head: u64,
    /// The thread that runs there.
    pub first: ThreadId,
    kept: Vec<Kept>,
    pub stretches: Vec<Stretch>,
    /// Events behind the process's end.
    pub tail: Vec<u64>,
}

impl Lives {
    /// Reads a stream to its end, or to that many events.
    pub fn read(mut log: StreamReader, end: u64) -> Result<Lives, Refused> {
        let failed = |error: &dyn std::fmt::Display| Refused::Log(error.to_string());
        let mut lives = Lives {
            head: 0,
            first: 0,
            kept: Vec::new(),
            stretches: Vec::new(),
            tail: Vec::new(),
        };
        let mut borrowers = Borrowers::default();
        let (mut current, mut several, mut bytes) = (0, false, 0);
        let mut reading = Reading::default();
        loop {
            let number = log.position();
            if number >= end && !matches!(log.peek(), Ok(Some(Record::Effect(_)))) {
                break;
            }
            match log.next().map_err(|error| failed(&error))? {
                None => break,
                Some(Record::Effect(effect)) => {
                    if let Some(kept) = lives.kept.last_mut() {
                        let effect = KeptEffect::of(&effect);
                        bytes += effect.size();
                        kept.effects.push(effect);
                    }
                    if bytes > MOST_BYTES {
                        return Err(Refused::TooLong);
                    }
                }
                // A region's beginning, or an execution slice.
                Some(Record::Event(Event::State { .. } | Event::Leap { .. })) => {
                    return Err(Refused::Part);
                }
                Some(Record::Event(event)) => {
                    let borrowed = borrowers.pass(&event);
                    if several {
                        if borrowed {
                            return Err(Refused::Borrowed(number));
                        }
                        lives.kept.push(Kept::of(&event));
                        reading.event(&mut lives, number, &event, current)?;
                    }
                    match event {
                        Event::NewThread { .. } if !borrowed && !several => {
                            (several, lives.head, lives.first) = (true, number + 1, current);
                            // Its effects are the head's.
                            while let Ok(Some(Record::Effect(_))) = log.peek() {
                                let _ = log.next();
                            }
                        }
                        Event::Switched { to, .. } => current = to,
                        _ => {}
                    }
                }
            }
        }
        match several {
            true => Ok(lives),
            false => Err(Refused::OneThread),
        }
    }

    /// An event behind the head.
    pub fn kept(&self, number: u64) -> &Kept {
        &self.kept[(number - self.head) as usize]
    }

    /// The stretch during which so many events are done.
    pub fn stretch(&self, event: u64) -> Option<usize> {
        let at = self.stretches.partition_point(|one| one.event < event);
        (at < self.stretches.len()).then_some(at)
    }
}

/// Where all threads are.
#[derive(Default)]
struct Reading {
    spots: BTreeMap<ThreadId, Spot>,
    silent: Vec<u64>,
    whole: bool,
    over: bool,
}

impl Reading {
    fn event(
        &mut self,
        lives: &mut Lives,
        number: u64,
        event: &Event,
        current: ThreadId,
    ) -> Result<(), Refused> {
        if self.over {
            // Nobody runs any more, unless an exec has failed.
            let still = matches!(
                event,
                Event::Check { .. } | Event::Time(_) | Event::Note(_) | Event::Deadlock(_)
            );
            lives.tail.push(number);
            return match still {
                true => Ok(()),
                false => Err(Refused::Ends(number)),
            };
        }
        match event {
            Event::Values(_) | Event::Time(_) | Event::Note(_) | Event::Deadlock(_) => {
                self.whole |= matches!(event, Event::Values(_));
                self.silent.push(number);
                return Ok(());
            }
            Event::Forked { .. } => return Err(Refused::Forks(number)),
            Event::Shared { .. } => return Err(Refused::Shares(number)),
            Event::EndedThread { thread } if *thread != current => {
                return Err(Refused::Ends(number));
            }
            Event::Exited { .. } | Event::Killed { .. } | Event::Exec { .. } => self.over = true,
            _ => {}
        }
        let spot = self.spots.entry(current).or_default();
        let start = *spot;
        let end = start.on(event.place());
        *spot = match event {
            Event::Switched { .. } | Event::Check { .. } => end,
            _ => Spot::default(),
        };
        lives.stretches.push(Stretch {
            thread: current,
            event: number,
            silent: std::mem::take(&mut self.silent),
            start,
            end,
            whole: std::mem::take(&mut self.whole),
            switched: matches!(event, Event::Switched { .. }),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spots_add_up() {
        let place = |ticks, steps| Place { ticks, steps };
        let spot = |ticks, steps| Spot { ticks, steps };
        assert_eq!(spot(0, 0).on(place(100, 3)), spot(100, 3));
        assert_eq!(spot(100, 3).on(place(0, 4)), spot(100, 7));
        assert_eq!(spot(100, 3).on(place(50, 2)), spot(150, 2));
        for (from, to) in [((0, 0), (0, 5)), ((100, 3), (100, 7)), ((1, 9), (2, 0))] {
            let (from, to) = (spot(from.0, from.1), spot(to.0, to.1));
            assert_eq!(from.on(to.from(from)), to);
        }
    }
}
