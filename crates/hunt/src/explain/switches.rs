//! Where threads were switched away although they could go on. In: a recording's events. Out: those places, with lines.

use std::collections::HashMap;

use clew_recording::deadlock::{self, Waiter};
use clew_recording::event::{Event, Record, StreamId, ThreadId};
use clew_recording::position::Position;
use clew_recording::reader::{ReadError, Recording};
use clew_recording::script::{End, Script, Turn};
use clew_timeline::{Result, Target};

use super::Preemption;
use super::spot::{Spot, View};
use crate::measure::Schedule;
use crate::turns::Turns;

/// So many are told with lines.
const MOST: usize = 200;
/// Stretches of a new thread's life in which its first function is looked for.
const STRETCHES: usize = 8;

/// One process, as the log tells it.
#[derive(Default)]
pub(super) struct Story {
    pub stream: StreamId,
    pub turns: Vec<Turn>,
    /// The switches at which turns ended, with the turns' numbers.
    switches: Vec<(usize, Switch)>,
    /// Who waits for whom, if nobody can ever go on.
    pub deadlock: Option<Vec<Waiter>>,
    /// Where each thread ran first: after so many events, for so many ticks.
    stretches: HashMap<ThreadId, Vec<(u64, u64)>>,
    work: Schedule,
}

#[derive(Clone, Copy)]
struct Switch {
    at: Position,
    from: ThreadId,
    to: ThreadId,
}

impl Story {
    /// Those that end a turn though the thread could go on.
    fn preemptions(&self) -> impl Iterator<Item = &(usize, Switch)> {
        let forced = |n: usize| self.turns.get(n).is_some_and(|turn| turn.end != End::Free);
        self.switches.iter().filter(move |(n, _)| forced(*n))
    }
}

/// The process that a schedule is about: one with a deadlock, else the one whose threads worked most.
pub(super) fn read(recording: &Recording) -> std::result::Result<Option<Story>, ReadError> {
    let mut best: Option<Story> = None;
    // Which thread of its parent a forked process goes on with.
    let mut first: HashMap<StreamId, ThreadId> = HashMap::new();
    for info in recording.streams() {
        let mut reader = recording.stream(info.id)?;
        let mut teller = Teller::new(info.id, first.get(&info.id).copied().unwrap_or(0));
        // A torn end: what there is will do.
        while let Ok(Some(record)) = reader.next() {
            if let Record::Event(event) = record {
                if let Event::Forked { stream, .. } = event {
                    first.insert(stream, teller.thread);
                }
                teller.event(&event);
            }
        }
        let story = teller.finish();
        let rank = |story: &Story| {
            (
                story.deadlock.is_some(),
                story.work.work,
                story.work.threads,
            )
        };
        if best.as_ref().is_none_or(|best| rank(&story) >= rank(best)) {
            best = Some(story);
        }
    }
    Ok(best)
}

/// Follows the events of a stream.
struct Teller {
    story: Story,
    turns: Turns,
    /// Events so far.
    events: u64,
    thread: ThreadId,
}

impl Teller {
    fn new(stream: StreamId, thread: ThreadId) -> Teller {
        Teller {
            story: Story {
                stream,
                work: Schedule {
                    threads: 1,
                    ..Schedule::default()
                },
                ..Story::default()
            },
            turns: Turns::new(thread),
            events: 0,
            thread,
        }
    }

    fn event(&mut self, event: &Event) {
        if self.turns.event(event) {
            self.story.work.count(event);
        }
        let place = event.place();
        if place.ticks > 1 {
            let stretches = self.story.stretches.entry(self.thread).or_default();
            if stretches.len() < STRETCHES {
                stretches.push((self.events, place.ticks));
            }
        }
        match *event {
            Event::Switched { place, to } => {
                let switch = Switch {
                    at: Position {
                        event: self.events,
                        ticks: place.ticks,
                        steps: place.steps.into(),
                    },
                    from: self.thread,
                    to,
                };
                self.switched(switch);
                self.thread = to;
            }
            Event::Deadlock(ref waiters) => self.story.deadlock = Some(waiters.clone()),
            Event::Note(text) => {
                if let Some(waiters) = deadlock::of_note(text) {
                    self.story.deadlock = Some(waiters);
                }
            }
            _ => {}
        }
        self.events += 1;
    }

    /// The last turn ended here, if it is that thread's; if others only looked in, it ends here instead.
    fn switched(&mut self, switch: Switch) {
        let turns = self.turns.so_far();
        let Some(number) = turns.len().checked_sub(1) else {
            return;
        };
        if turns[number].thread != switch.from {
            return;
        }
        let switches = &mut self.story.switches;
        switches.retain(|(n, _)| *n != number);
        switches.push((number, switch));
    }

    fn finish(mut self) -> Story {
        self.story.turns = self.turns.finish();
        self.story
    }
}

/// The lines of the first of them, and how many there are. With a schedule that the run followed: of those that it asked
/// for.
pub(super) fn explain(
    view: &mut View,
    story: &Story,
    schedule: Option<&Script>,
    most: usize,
) -> Result<(Vec<Preemption>, u64)> {
    let asked = |turn: &Turn| schedule.is_none_or(|schedule| schedule.turns.contains(turn));
    let wanted = |number: usize| story.turns.get(number).is_some_and(asked);
    let mut all: Vec<_> = story.preemptions().filter(|(n, _)| wanted(*n)).collect();
    // It may say in other words where turns end.
    if all.is_empty() && schedule.is_some_and(|schedule| schedule.preemptions() > 0) {
        all = story.preemptions().collect();
    }
    let mut told = Vec::new();
    for (number, switch) in all.iter().take(most.min(MOST)) {
        view.timeline.seek(Target::Position(switch.at))?;
        let threads = view.threads()?;
        let who = |number| {
            let found = threads.iter().find(|(_, who)| who.number == number);
            found.map(|(_, who)| who.clone())
        };
        // Whoever did nothing in between isn't meant.
        let to = story.turns.get(number + 1).map_or(switch.to, |t| t.thread);
        let (Some(thread), Some(other)) = (who(switch.from), who(to)) else {
            continue;
        };
        let at = view.spot(switch.from)?;
        let begins = !ran_before(story, to, switch.at);
        let mut goes_on = view.spot(to)?;
        if begins && let Some(first) = first_function(view, story, to)? {
            goes_on = first;
        }
        told.push(Preemption {
            position: switch.at.to_string(),
            thread,
            at,
            to: other,
            begins,
            goes_on,
        });
    }
    Ok((told, all.len() as u64))
}

/// Whether a thread has done anything worth mentioning.
fn ran_before(story: &Story, thread: ThreadId, at: Position) -> bool {
    let stretches = story.stretches.get(&thread).into_iter().flatten();
    stretches.into_iter().any(|(event, _)| *event < at.event)
}

/// The function of the program that a new thread begins with: the outermost one, in the midst of what it did first.
fn first_function(view: &mut View, story: &Story, thread: ThreadId) -> Result<Option<Spot>> {
    for &(event, ticks) in story.stretches.get(&thread).into_iter().flatten() {
        view.timeline.seek(Target::Position(Position {
            event,
            ticks: ticks / 2,
            steps: 0,
        }))?;
        let outermost = view.outermost(thread)?;
        if outermost.is_some() {
            return Ok(outermost);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_recording::event::{Call, End as CallEnd, Place};

    fn call(ticks: u64, end: CallEnd) -> Event<'static> {
        Event::Call(Call {
            ticks,
            nr: 202,
            args: [0; 6],
            end,
            output: None,
        })
    }

    fn switched(ticks: u64, steps: u32, to: ThreadId) -> Event<'static> {
        Event::Switched {
            place: Place { ticks, steps },
            to,
        }
    }

    #[test]
    fn only_turns_that_could_go_on_count() {
        let mut teller = Teller::new(1, 0);
        for event in [
            Event::NewThread { thread: 1, tid: 71 },
            Event::NewThread { thread: 2, tid: 72 },
            // Thread 0 is interrupted, 1 only looks in, and 0 is interrupted a bit later.
            switched(5, 2, 1),
            switched(0, 0, 0),
            switched(3, 1, 1),
            // This one waits, that one ends.
            call(7, CallEnd::Waits),
            switched(0, 0, 2),
            Event::EndedThread { thread: 2 },
            switched(0, 0, 0),
            call(1, CallEnd::Returned(0)),
        ] {
            teller.event(&event);
        }
        let story = teller.finish();
        let forced: Vec<_> = story.preemptions().collect();
        let [(0, switch)] = forced[..] else {
            panic!("{} preemptions", forced.len());
        };
        let at: Position = "4+3+1".parse().unwrap();
        assert_eq!((switch.at, switch.from, switch.to), (at, 0, 1));
        assert!(ran_before(&story, 0, at) && !ran_before(&story, 1, at));
    }
}
