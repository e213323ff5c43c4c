//! Where threads were switched away although they could go on. In: a recording's events. Out: those places, with lines.

use std::collections::HashSet;

use clew_recording::event::{End, Event, Place, Record, StreamId, ThreadId};
use clew_recording::position::Position;
use clew_recording::reader::{ReadError, Recording};
use clew_recording::summary;
use clew_timeline::{Result, Target};

use super::Preemption;
use super::spot::View;
use crate::run::DEADLOCK;

/// The number of the call by which a thread gives way.
const SCHED_YIELD: u32 = 24;
/// So many are told with lines.
const MOST: usize = 200;

/// One process, as the log tells it.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub stream: StreamId,
    pub forced: Vec<Switch>,
    /// The note about a deadlock.
    pub deadlock: Option<String>,
    /// Of all threads, from the second one on.
    work: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub at: Position,
    pub from: ThreadId,
    pub to: ThreadId,
    /// It is the other thread's first turn.
    pub begins: bool,
}

/// The process that a schedule is about: one with a deadlock, or the one whose threads worked most.
pub(super) fn read(recording: &Recording) -> std::result::Result<Option<Story>, ReadError> {
    let mut best: Option<Story> = None;
    for info in recording.streams() {
        let mut reader = recording.stream(info.id)?;
        let mut teller = Teller::new(info.id);
        // A torn end: what there is will do.
        while let Ok(Some(record)) = reader.next() {
            if let Record::Event(event) = record {
                teller.event(&event);
            }
        }
        let story = teller.story;
        let rank = |story: &Story| (story.deadlock.is_some(), story.work);
        if best.as_ref().is_none_or(|best| rank(&story) >= rank(best)) {
            best = Some(story);
        }
    }
    Ok(best)
}

/// Follows the events of a stream.
struct Teller {
    story: Story,
    /// Events so far.
    events: u64,
    thread: ThreadId,
    /// Those that can't go on: in a call that waits, or ended.
    stuck: HashSet<ThreadId>,
    ran: HashSet<ThreadId>,
    /// The last thing that the thread did was to give way.
    yielded: bool,
}

impl Teller {
    fn new(stream: StreamId) -> Teller {
        Teller {
            story: Story {
                stream,
                ..Story::default()
            },
            events: 0,
            thread: 0,
            stuck: HashSet::new(),
            ran: HashSet::from([0]),
            yielded: false,
        }
    }

    fn event(&mut self, event: &Event) {
        self.events += 1;
        let place = summary::place(event);
        if self.ran.len() > 1 {
            self.story.work += place.ticks + 1;
        }
        if place != Place::default() {
            self.yielded = false;
        }
        match event {
            Event::Call(call) => {
                self.yielded = call.nr == SCHED_YIELD;
                if call.end == End::Waits {
                    self.stuck.insert(self.thread);
                }
            }
            Event::Resumed { .. } => {
                self.stuck.remove(&self.thread);
                self.yielded = false;
            }
            Event::EndedThread { thread } => {
                self.stuck.insert(*thread);
            }
            Event::Switched { place, to } => self.switched(*place, *to),
            Event::Note(text) => {
                if let Some(text) = text.strip_prefix(DEADLOCK) {
                    self.story.deadlock = Some(text.into());
                }
            }
            _ => {}
        }
    }

    fn switched(&mut self, place: Place, to: ThreadId) {
        let begins = self.ran.insert(to);
        if !self.stuck.contains(&self.thread) && !self.yielded {
            self.story.forced.push(Switch {
                at: Position {
                    event: self.events - 1,
                    ticks: place.ticks,
                    steps: place.steps.into(),
                },
                from: self.thread,
                to,
                begins,
            });
        }
        self.thread = to;
        self.yielded = false;
    }
}

/// The lines of the first of them.
pub(super) fn explain(view: &mut View, story: &Story, most: usize) -> Result<Vec<Preemption>> {
    let mut all = Vec::new();
    for switch in story.forced.iter().take(most.min(MOST)) {
        view.timeline.seek(Target::Position(switch.at))?;
        let threads = view.threads()?;
        let who = |number| {
            let found = threads.iter().find(|(_, who)| who.number == number);
            found.map(|(_, who)| who.clone())
        };
        let (Some(thread), Some(to)) = (who(switch.from), who(switch.to)) else {
            continue;
        };
        all.push(Preemption {
            position: switch.at.to_string(),
            thread,
            at: view.spot(switch.from)?,
            to,
            begins: switch.begins,
            goes_on: view.spot(switch.to)?,
        });
    }
    Ok(all)
}
