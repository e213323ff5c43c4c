//! All changes of a piece of memory. In: where it is. Out: each change with what was there before and after, in a buffer.
//!
//! What an instruction changes is found by comparing, when the next one comes to the same memory: nothing else can have
//! written meanwhile. What events write is compared behind each.

use clew_recording::event::ThreadId;

use super::observe::{Observer, Sight, Stays};
use super::protocol::{ChangeSeen, Goal, Mark, Reply, Watch, WatchKind, Why};
use super::serve::Worker;
use super::stops::read;
use super::trace::tell;
use super::travel::Done;
use crate::cache::instruments::{Instruments, Watched};
use crate::memory::Memory;
use crate::replay::Machine;
use crate::trace::buffer::Buffer;

/// After so many accesses it looks for commands.
const AT_ONCE: u32 = 1 << 13;

struct Changes {
    watch: Watch,
    contents: Option<Vec<u8>>,
    /// The last instruction that may have changed it.
    pending: Option<(Mark, ThreadId)>,
    seen: Vec<ChangeSeen>,
    most: usize,
    left: u32,
}

impl Changes {
    /// Compares, and keeps what differs.
    fn compare(&mut self, memory: &Memory, at: Mark, thread: ThreadId, by_event: bool) {
        let new = read(memory, &self.watch);
        if new == self.contents {
            return;
        }
        let before = std::mem::replace(&mut self.contents, new.clone());
        if self.seen.len() <= self.most {
            self.seen.push(ChangeSeen {
                at,
                thread,
                by_event,
                before,
                after: new,
            });
        }
    }

    fn settle(&mut self, machine: &Machine) {
        if let Some((mark, thread)) = self.pending.take() {
            self.compare(&machine.memory, mark, thread, false);
        }
    }

    fn full(&self) -> bool {
        self.seen.len() > self.most
    }
}

impl Observer for Changes {
    fn instruments(&mut self, _worker: &Worker) -> Instruments {
        let range = self.watch.addr..self.watch.addr.saturating_add(self.watch.len);
        Instruments {
            watches: vec![Watched {
                range,
                reads: false,
                writes: true,
            }],
            ..Instruments::default()
        }
    }

    fn here(&mut self, _worker: &mut Worker, reached: bool) -> Done<Option<Why>> {
        self.left = AT_ONCE;
        Ok(match (reached, self.full()) {
            (true, _) => Some(Why::Goal),
            (false, true) => Some(Why::Interrupted),
            (false, false) => None,
        })
    }

    fn due(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        self.settle(&worker.machine);
        worker.came_from = (worker.mark(), worker.machine.current);
        Ok(None)
    }

    fn done(&mut self, worker: &mut Worker) -> Done {
        let (mark, thread) = worker.came_from;
        self.compare(&worker.machine.memory, mark, thread, true);
        Ok(())
    }

    fn silent(&mut self, worker: &mut Worker, done: bool) {
        if !done {
            self.settle(&worker.machine);
            worker.came_from = (worker.mark(), worker.machine.current);
            return;
        }
        let (mark, thread) = worker.came_from;
        self.compare(&worker.machine.memory, mark, thread, true);
    }

    fn single(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        self.settle(&worker.machine);
        self.pending = Some((worker.mark(), worker.machine.current));
        Ok(None)
    }

    fn stepped(&mut self, worker: &mut Worker) -> Done<Option<Why>> {
        self.settle(&worker.machine);
        Ok(None)
    }

    fn passes(&mut self, sight: Sight<'_>) -> bool {
        self.settle(sight.machine);
        let (pc, sp) = sight.machine.place_now();
        let mark = Mark {
            event: sight.events,
            ticks: sight.machine.since(),
            pc,
            sp,
        };
        self.pending = Some((mark, sight.machine.current));
        self.left = self.left.saturating_sub(1);
        self.left > 0 && !self.full()
    }

    fn stays(&mut self, _worker: &mut Worker) -> Stays {
        Stays::Passed
    }

    fn ends(&mut self, worker: &mut Worker) {
        self.settle(&worker.machine);
    }
}

impl Worker {
    /// Goes to the goal and collects changes of the memory there, at most so many.
    pub(super) fn changes(
        &mut self,
        goal: Goal,
        (addr, len): (u64, u64),
        most: u64,
        buffer: &mut Buffer,
    ) -> Done<Reply> {
        let watch = Watch {
            addr,
            len,
            kind: WatchKind::Change,
        };
        let came_from = (self.mark(), self.machine.current);
        let mut changes = Changes {
            contents: read(&self.machine.memory, &watch),
            watch,
            pending: None,
            seen: Vec::new(),
            most: usize::try_from(most).unwrap_or(usize::MAX),
            left: AT_ONCE,
        };
        // What happens together with the place that it begins at belongs to what follows.
        self.pass_silent()?;
        changes.compare(&self.machine.memory, came_from.0, came_from.1, true);
        let stopped = self.observe(goal, &mut changes);
        self.instrument(false);
        let stopped = stopped?;
        let complete = !changes.full() && stopped.why != Why::Interrupted;
        changes.seen.truncate(changes.most);
        tell(buffer, &changes.seen[..], stopped, complete)
    }
}
