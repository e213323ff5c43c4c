//! Children that have borrowed their parent's memory (vfork, and clone alike): as long as they do, they are threads of its stream,
//! and the parent waits. In: events, in order. Out: which are theirs, and who they are.

use std::collections::BTreeMap;

use crate::event::{Call, End, Event, ThreadId};

/// clone, fork, vfork, clone3: if they wait, it is for a child that has borrowed the memory.
const FORKS: [u32; 4] = [56, 57, 58, 435];

/// Whether a call lets a child have the memory, and waits for it.
pub fn lends(call: &Call) -> bool {
    call.end == End::Waits && lends_if_it_waits(call.nr)
}

/// The same of a call that is known to wait.
pub fn lends_if_it_waits(nr: u32) -> bool {
    FORKS.contains(&nr)
}

/// Those of a stream.
#[derive(Clone, Debug, Default)]
pub struct Borrowers {
    /// Who has borrowed at the moment: each from the one before it, the first from the process.
    now: Vec<ThreadId>,
    /// All that ever had, and the pids that they had as processes.
    pids: BTreeMap<ThreadId, i32>,
    /// The thread that is made next is one.
    lends: bool,
}

impl Borrowers {
    /// The event happens. Whether it is a borrower's, or about one: none of the process's own.
    pub fn pass(&mut self, event: &Event) -> bool {
        match *event {
            Event::NewThread { thread, tid } if self.lends => {
                self.lends = false;
                self.now.push(thread);
                self.pids.insert(thread, tid);
                return true;
            }
            // The way back to the parent follows.
            Event::EndedThread { thread } if self.now.last() == Some(&thread) => {
                self.lends = false;
            }
            Event::Switched { to, .. } if !self.now.is_empty() => {
                while self.now.last().is_some_and(|&last| last != to) {
                    self.now.pop();
                }
                return true;
            }
            // A borrower may lend to a child of its own.
            Event::Call(call) => self.lends = lends(&call),
            _ => {}
        }
        !self.now.is_empty()
    }

    /// The process that a thread of the stream is, or was, if it is one that borrowed.
    pub fn pid(&self, thread: ThreadId) -> Option<i32> {
        self.pids.get(&thread).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Place;

    fn call(nr: u32, end: End) -> Event<'static> {
        Event::Call(Call {
            ticks: 1,
            nr,
            args: [0; 6],
            end,
            output: None,
        })
    }

    fn switched(to: ThreadId) -> Event<'static> {
        Event::Switched {
            place: Place::default(),
            to,
        }
    }

    #[test]
    fn one_within_the_other() {
        let mut borrowers = Borrowers::default();
        let made = |thread, tid| Event::NewThread { thread, tid };
        let events = [
            (call(39, End::Returned(0)), false),
            (call(58, End::Waits), false),
            (made(1, 70), true),
            (switched(1), true),
            (call(56, End::Waits), true),
            (made(2, 71), true),
            (switched(2), true),
            (call(59, End::Replaced), true),
            (Event::EndedThread { thread: 2 }, true),
            (switched(1), true),
            (
                Event::Resumed {
                    result: Some(71),
                    by: None,
                },
                true,
            ),
            (Event::EndedThread { thread: 1 }, true),
            (switched(0), true),
            (
                Event::Resumed {
                    result: Some(70),
                    by: None,
                },
                false,
            ),
            // A thread of its own.
            (call(56, End::Returned(72)), false),
            (made(3, 72), false),
        ];
        for (n, (event, theirs)) in events.iter().enumerate() {
            assert_eq!(borrowers.pass(event), *theirs, "{n}: {event:?}");
        }
        let pids: Vec<_> = (0..4).map(|thread| borrowers.pid(thread)).collect();
        assert_eq!(pids, [None, Some(70), Some(71), None]);
    }
}
