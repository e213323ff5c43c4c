//! The new log. In: units in another order. Out: their events in that order, with the switches that it takes, and places
//! counted from the events before them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clew_recording::event::{Effect, Event, Place, Record, ThreadId};
use clew_recording::reader::Recording;
use clew_recording::rewrite::{self, RewriteError};
use clew_timeline::Position;

use super::Reordered;
use super::lives::{Lives, Spot};
use super::units::{UnitId, Units};

/// What stands in the new log.
enum Put {
    /// An event of the old one, as it is.
    Silent(u64),
    /// One that is at another place now.
    Event(u64, Place),
    Switched(Place, ThreadId),
}

/// Goes through the new run; tells where each unit begins, and what is put.
fn walk<E>(
    lives: &Lives,
    units: &Units,
    order: &[UnitId],
    begins: &mut dyn FnMut(UnitId, Position),
    put: &mut dyn FnMut(Put) -> Result<(), E>,
) -> Result<(), E> {
    let mut current = lives.first;
    let mut events = lives.head;
    // Where each thread's last event in the log was, and where it stands.
    let mut bases: BTreeMap<ThreadId, Spot> = BTreeMap::new();
    let mut stands: BTreeMap<ThreadId, Spot> = BTreeMap::new();
    let mut ended: BTreeSet<ThreadId> = BTreeSet::new();
    let mut begun: BTreeSet<usize> = BTreeSet::new();
    for &id in order {
        let unit = &units.all[id as usize];
        let stretch = &lives.stretches[unit.stretch];
        // Who gave way where it stood already, waiting or ended, has nothing to do.
        let idle = stretch.switched && unit.start == unit.end;
        if unit.thread != current && !idle {
            let stand = stands.get(&current).copied().unwrap_or_default();
            let base = bases.insert(current, stand).unwrap_or_default();
            let place = match ended.contains(&current) {
                true => Place::default(),
                false => stand.from(base),
            };
            put(Put::Switched(place, unit.thread))?;
            (current, events) = (unit.thread, events + 1);
        }
        if begun.insert(unit.stretch) {
            for &silent in &stretch.silent {
                put(Put::Silent(silent))?;
                events += 1;
            }
        }
        let base = bases.get(&current).copied().unwrap_or_default();
        let start = match idle {
            true => stands.get(&current).copied().unwrap_or_default(),
            false => unit.start,
        };
        let at = start.from(base);
        begins(
            id,
            Position {
                event: events,
                ticks: at.ticks,
                steps: u64::from(at.steps),
            },
        );
        if idle {
            continue;
        }
        stands.insert(current, unit.end);
        if !unit.last || stretch.switched {
            continue;
        }
        put(Put::Event(stretch.event, unit.end.from(base)))?;
        events += 1;
        let after = match lives.kept(stretch.event).event() {
            Event::Check { .. } => unit.end,
            Event::EndedThread { .. } => {
                ended.insert(current);
                Spot::default()
            }
            _ => Spot::default(),
        };
        bases.insert(current, after);
        stands.insert(current, after);
    }
    Ok(())
}

/// Where each unit begins in the new log.
pub fn starts(lives: &Lives, units: &Units, order: &[UnitId]) -> Vec<Position> {
    let mut starts = vec![Position::default(); units.all.len()];
    let walked: Result<(), std::convert::Infallible> = walk(
        lives,
        units,
        order,
        &mut |unit, at| starts[unit as usize] = at,
        &mut |_| Ok(()),
    );
    match walked {
        Ok(()) => starts,
        Err(never) => match never {},
    }
}

/// What is counted over all events of a log stays in order: times, and places among all outputs.
struct Counted {
    times: std::vec::IntoIter<u64>,
    outputs: std::vec::IntoIter<u64>,
}

impl Counted {
    fn of(lives: &Lives, events: impl Iterator<Item = u64>) -> Counted {
        let (mut times, mut outputs) = (Vec::new(), Vec::new());
        for number in events {
            let kept = lives.kept(number);
            match kept.event() {
                Event::Time(time) => times.push(time),
                Event::Call(call) => {
                    outputs.extend(call.output.map(|output| output.order).filter(|&o| o != 0));
                }
                _ => {}
            }
            for effect in &kept.effects {
                if let Effect::Output { order, .. } = effect.effect() {
                    outputs.push(order);
                }
            }
        }
        times.sort_unstable();
        outputs.sort_unstable();
        Counted {
            times: times.into_iter(),
            outputs: outputs.into_iter(),
        }
    }

    fn output(&mut self, order: u64) -> u64 {
        match order {
            0 => 0,
            order => self.outputs.next().unwrap_or(order),
        }
    }
}

impl Reordered<'_> {
    /// Writes the log of the recording with this process's run in the new order.
    pub fn write(
        &self,
        recording: &Recording,
        stream: clew_recording::event::StreamId,
        file: &Path,
    ) -> Result<(), RewriteError> {
        let (lives, units) = (&self.of.lives, &self.of.units);
        rewrite::with_stream(recording, file, stream, &mut |out| {
            let mut reader = recording.stream(stream)?;
            loop {
                let head = reader.position() < lives.head;
                match reader.peek()? {
                    Some(Record::Event(_)) if !head => break,
                    None => break,
                    _ => {}
                }
                if let Some(record) = reader.next()? {
                    out.put(&record)?;
                }
            }
            let events = lives
                .stretches
                .iter()
                .flat_map(|one| one.silent.iter().copied().chain([one.event]));
            let mut counted = Counted::of(lives, events);
            let mut put = |put: Put| -> Result<(), RewriteError> {
                let (number, place) = match put {
                    Put::Switched(place, to) => {
                        out.put(&Record::Event(Event::Switched { place, to }))?;
                        return Ok(());
                    }
                    Put::Silent(number) => (number, None),
                    Put::Event(number, place) => (number, Some(place)),
                };
                let kept = lives.kept(number);
                let event = placed(kept.event(), place, &mut counted);
                out.put(&Record::Event(event))?;
                for effect in &kept.effects {
                    let effect = match effect.effect() {
                        Effect::Output { order, bytes } => Effect::Output {
                            order: counted.output(order),
                            bytes,
                        },
                        other => other,
                    };
                    out.put(&Record::Effect(effect))?;
                }
                Ok(())
            };
            walk(lives, units, &self.order, &mut |_, _| {}, &mut put)?;
            for &number in &lives.tail {
                let kept = lives.kept(number);
                out.put(&Record::Event(kept.event()))?;
                for effect in &kept.effects {
                    out.put(&Record::Effect(effect.effect()))?;
                }
            }
            Ok(())
        })
    }
}

/// The event where it is now.
fn placed<'a>(mut event: Event<'a>, place: Option<Place>, counted: &mut Counted) -> Event<'a> {
    match &mut event {
        Event::Time(time) => *time = counted.times.next().unwrap_or(*time),
        Event::Call(call) => {
            if let Some(output) = &mut call.output {
                output.order = counted.output(output.order);
            }
        }
        // Of all memory: others aren't where they were. At the end it is compared as it was.
        Event::Check { memory, .. } => *memory = None,
        _ => {}
    }
    let Some(new) = place else {
        return event;
    };
    match &mut event {
        Event::Call(call) => call.ticks = new.ticks,
        Event::Instruction { ticks, .. }
        | Event::Shared { ticks, .. }
        | Event::Forked { ticks, .. }
        | Event::Exec { ticks }
        | Event::Exited { ticks, .. } => *ticks = new.ticks,
        Event::Signal { place, .. } | Event::Check { place, .. } | Event::Killed { place, .. } => {
            *place = new;
        }
        _ => {}
    }
    event
}
