//! Where a stream stands after each of its events. In: events, in order. Out: whose the next one is, how many ticks were
//! made, what time it is, who waits in which call, and the threads' ids.

use std::collections::BTreeMap;

use crate::bytes::{Malformed, Reader};
use crate::codec::{put_number, put_signed};
use crate::event::{Call, End, Event, Start, ThreadId};

/// No stream of clew's has so many threads at once; a stranger's file that says so is refused.
const MOST: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Who runs.
    pub thread: ThreadId,
    /// Of all threads.
    pub ticks: u64,
    /// Nanoseconds since the recording began, as far as that was noted.
    pub time: u64,
    tids: BTreeMap<ThreadId, i32>,
    waiting: BTreeMap<ThreadId, Call>,
}

impl Walk {
    /// Before the first event.
    pub fn new(start: &Start) -> Walk {
        Walk {
            time: start.time,
            tids: BTreeMap::from([(0, start.tid)]),
            ..Walk::default()
        }
    }

    /// The tid of the thread that runs; 0 if nobody told.
    pub fn tid(&self) -> i32 {
        self.tid_of(self.thread).unwrap_or(0)
    }

    pub fn tid_of(&self, thread: ThreadId) -> Option<i32> {
        self.tids.get(&thread).copied()
    }

    /// The calls that threads wait in.
    pub fn waiting(&self) -> impl Iterator<Item = &Call> {
        self.waiting.values()
    }

    /// Goes over the place of an event, to where it happens.
    pub fn come_to(&mut self, event: &Event) {
        self.ticks = self.ticks.saturating_add(event.place().ticks);
        if let Event::Time(time) = event {
            self.time = *time;
        }
    }

    /// The event happens. Out: if it is a call's end, the call that waited.
    pub fn pass(&mut self, event: &Event) -> Option<Call> {
        match event {
            Event::Call(call) if call.end == End::Waits => {
                self.waiting.insert(self.thread, *call);
            }
            Event::Resumed { .. } => return self.waiting.remove(&self.thread),
            Event::State {
                waits: Some(call), ..
            } => {
                self.waiting.insert(self.thread, *call);
            }
            Event::Switched { to, .. } => self.thread = *to,
            Event::NewThread { thread, tid } => {
                self.tids.insert(*thread, *tid);
            }
            _ => {}
        }
        None
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.thread.into(), self.ticks, self.time] {
            put_number(out, number);
        }
        put_number(out, self.tids.len() as u64);
        for (&thread, &tid) in &self.tids {
            put_number(out, thread.into());
            put_signed(out, tid.into());
        }
        put_number(out, self.waiting.len() as u64);
        for (&thread, call) in &self.waiting {
            put_number(out, thread.into());
            put_number(out, call.nr.into());
            put_number(out, call.ticks);
            for arg in call.args {
                put_number(out, arg);
            }
        }
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Walk, Malformed> {
        let mut walk = Walk {
            thread: input.small()?,
            ticks: input.number()?,
            time: input.number()?,
            ..Walk::default()
        };
        for _ in 0..bounded(input)? {
            walk.tids.insert(input.small()?, input.signed()? as i32);
        }
        for _ in 0..bounded(input)? {
            let thread = input.small()?;
            let (nr, ticks) = (input.small()?, input.number()?);
            let mut args = [0; 6];
            for arg in &mut args {
                *arg = input.number()?;
            }
            let call = Call {
                ticks,
                nr,
                args,
                end: End::Waits,
                output: None,
            };
            walk.waiting.insert(thread, call);
        }
        Ok(walk)
    }
}

fn bounded(input: &mut Reader) -> Result<u64, Malformed> {
    let number = input.number()?;
    (number <= MOST).then_some(number).ok_or(Malformed)
}
