//! The schedule of a recorded run. In: a recording. Out: whose turns followed each other and where each of them ended, as
//! a script that `clew record --script` follows.
//!
//! A turn that ends because the thread waits, ends or gives way by a call is free to do so again; any other ends at a
//! point of the thread's life. Points know of ticks, calls and single steps. Behind a signal, steps are counted from there
//! in a recording: the point is then so many steps behind the tick or call before it, which is near.

use std::collections::HashMap;
use std::path::Path;

use clew_recording::borrowers::{self, Borrowers};
use clew_recording::event::{End as CallEnd, Event, Instruction, Record, StreamId, ThreadId};
use clew_recording::reader::Recording;
use clew_recording::script::{End, Point, Script, Turn};

use crate::HuntError;
use crate::measure::Schedule;

const SCHED_YIELD: u32 = 24;

/// The schedule of the process with the most work, of the program in it that did that.
pub fn of(folder: &Path) -> Result<Script, HuntError> {
    Ok(read(folder)?.1)
}

/// The same, and how much work it was. Reads a complete recording.
pub(crate) fn read(folder: &Path) -> Result<(Schedule, Script), HuntError> {
    let failed = |why: String| HuntError::Recording {
        path: folder.into(),
        why,
    };
    let recording = Recording::open(folder).map_err(|error| failed(error.to_string()))?;
    let mut most = (Schedule::default(), Script::default());
    let mut of = 0;
    let mut family = Family::default();
    for stream in recording.streams() {
        let mut reader = recording
            .stream(stream.id)
            .map_err(|error| failed(error.to_string()))?;
        let first = family.first_thread(stream.id);
        let mut work = Schedule {
            threads: 1,
            ..Schedule::default()
        };
        let mut turns = Turns::new(first);
        let mut children = Children::new(first, stream.start.pid);
        // A torn end: what there is will do.
        while let Ok(Some(record)) = reader.next() {
            if let Record::Event(event) = record {
                if turns.event(&event) {
                    work.count(&event);
                }
                children.event(&event, &mut family);
            }
        }
        if (work.work, work.threads) >= (most.0.work, most.0.threads) {
            most.1.turns = turns.finish();
            work.preemptions = most.1.preemptions() as u64;
            most.0 = work;
            of = stream.start.pid;
        }
    }
    let root = recording.streams().first().map(|stream| stream.start.pid);
    let path = root.and_then(|root| family.path(root, of));
    most.1.process =
        path.ok_or_else(|| failed(format!("it isn't told where process {of} comes from")))?;
    Ok(most)
}

/// Where in its own life the thread that runs is, so many ticks after so many events of a stream; by the events' order.
pub fn points(folder: &Path, of: StreamId, marks: &[(u64, u64)]) -> Result<Vec<Point>, HuntError> {
    let failed = |why: String| HuntError::Recording {
        path: folder.into(),
        why,
    };
    let recording = Recording::open(folder).map_err(|error| failed(error.to_string()))?;
    let mut family = Family::default();
    let mut points = Vec::new();
    for stream in recording.streams() {
        let mut reader = recording
            .stream(stream.id)
            .map_err(|error| failed(error.to_string()))?;
        let first = family.first_thread(stream.id);
        let mut turns = Turns::new(first);
        let mut children = Children::new(first, stream.start.pid);
        let mut marks = marks.iter().filter(|_| stream.id == of).peekable();
        let mut number = 0;
        loop {
            while let Some((_, ticks)) = marks.next_if(|(event, _)| *event <= number) {
                points.push(turns.behind(*ticks));
            }
            let Ok(Some(record)) = reader.next() else {
                break;
            };
            if let Record::Event(event) = record {
                turns.event(&event);
                children.event(&event, &mut family);
                number += 1;
            }
        }
        points.extend(marks.map(|(_, ticks)| turns.behind(*ticks)));
    }
    Ok(points)
}

/// The processes of a recording, each with its children in order.
#[derive(Default)]
struct Family {
    children: HashMap<i32, Vec<i32>>,
    /// Which thread of its parent each forked stream goes on with.
    first: HashMap<StreamId, ThreadId>,
}

impl Family {
    fn first_thread(&self, stream: StreamId) -> ThreadId {
        self.first.get(&stream).copied().unwrap_or(0)
    }

    /// How to get from `root` to `pid`.
    fn path(&self, root: i32, pid: i32) -> Option<Vec<u64>> {
        let (mut path, mut at) = (Vec::new(), pid);
        while at != root {
            let place = |(&parent, children): (&i32, &Vec<i32>)| {
                Some((parent, children.iter().position(|&child| child == at)?))
            };
            let (parent, place) = self.children.iter().find_map(place)?;
            path.push(place as u64);
            // Numbers that were used twice would lead around for ever.
            if path.len() > self.children.len() {
                return None;
            }
            at = parent;
        }
        path.reverse();
        Some(path)
    }
}

/// Sees who makes children in a stream.
struct Children {
    current: ThreadId,
    pid: i32,
    borrowers: Borrowers,
}

impl Children {
    fn new(current: ThreadId, pid: i32) -> Children {
        Children {
            current,
            pid,
            borrowers: Borrowers::default(),
        }
    }

    fn event(&mut self, event: &Event, family: &mut Family) {
        let pid = self.borrowers.pid(self.current).unwrap_or(self.pid);
        self.borrowers.pass(event);
        let mut add = |child| family.children.entry(pid).or_default().push(child);
        match *event {
            Event::Forked { stream, pid, .. } => {
                add(pid);
                family.first.insert(stream, self.current);
            }
            Event::NewThread { thread, tid } if self.borrowers.pid(thread).is_some() => add(tid),
            Event::Switched { to, .. } => self.current = to,
            _ => {}
        }
    }
}

/// Sees the turns of a stream.
pub(crate) struct Turns {
    turns: Vec<Turn>,
    current: ThreadId,
    points: HashMap<ThreadId, Point>,
    /// There is more than one thread; what the first did alone was nobody's turn.
    several: bool,
    /// The current thread has done something since its last turn ended.
    moved: bool,
    /// The process waits for them.
    borrowers: Borrowers,
}

impl Turns {
    pub(crate) fn new(current: ThreadId) -> Turns {
        Turns {
            turns: Vec::new(),
            current,
            points: HashMap::new(),
            several: false,
            moved: false,
            borrowers: Borrowers::default(),
        }
    }

    /// Where the current thread is so many ticks from here.
    fn behind(&self, ticks: u64) -> Point {
        let point = self.points.get(&self.current).copied().unwrap_or_default();
        match ticks {
            0 => point,
            ticks => Point {
                ticks: point.ticks.saturating_add(ticks),
                calls: 0,
                steps: 0,
            },
        }
    }

    /// False if the event isn't the process's own.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        if self.borrowers.pass(event) {
            return false;
        }
        let place = event.place();
        let point = self.points.entry(self.current).or_default();
        if place.ticks != 0 {
            point.ticks = point.ticks.saturating_add(place.ticks);
            (point.calls, point.steps) = (0, 0);
        }
        point.steps = point.steps.saturating_add(place.steps);
        self.moved |= place.ticks != 0 || place.steps != 0;
        match *event {
            Event::Call(call) => {
                point.calls = point.calls.saturating_add(1);
                point.steps = 0;
                self.moved = true;
                let waits = call.end == CallEnd::Waits && !borrowers::lends(&call);
                if waits || call.nr == SCHED_YIELD {
                    // Also if nobody else could run: a new turn begins all the same.
                    self.end(End::Free);
                }
            }
            Event::Instruction { what, .. } => {
                self.moved = true;
                // Those that were passed before it weren't told.
                let passed = match what {
                    Instruction::Quiet { passed } => passed,
                    _ => 0,
                };
                point.calls = point.calls.saturating_add(passed.saturating_add(1));
                point.steps = 0;
            }
            Event::NewThread { .. } => self.several = true,
            Event::EndedThread { thread } if thread == self.current => self.end(End::Free),
            Event::Switched { to, .. } => {
                let end = End::At(*point);
                if self.moved {
                    self.end(end);
                }
                self.current = to;
            }
            Event::Exec { .. } | Event::Exited { .. } | Event::Killed { .. } => self.moved = true,
            _ => {}
        }
        true
    }

    fn end(&mut self, end: End) {
        self.moved = false;
        if !self.several {
            return;
        }
        let thread = self.current;
        // Whoever ran in between did nothing.
        if let Some(last) = self.turns.last_mut()
            && last.thread == thread
            && last.end != End::Free
        {
            last.end = end;
            return;
        }
        self.turns.push(Turn { thread, end });
    }

    /// The turns that have ended.
    pub(crate) fn so_far(&self) -> &[Turn] {
        &self.turns
    }

    /// The turns; the last ends with the process.
    pub(crate) fn finish(mut self) -> Vec<Turn> {
        if self.moved {
            self.end(End::Free);
        }
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_recording::event::{Call, Place};

    fn call(ticks: u64, nr: u32, end: CallEnd) -> Event<'static> {
        Event::Call(Call {
            ticks,
            nr,
            args: [0; 6],
            end,
            output: None,
        })
    }

    fn returns(ticks: u64) -> Event<'static> {
        call(ticks, 39, CallEnd::Returned(0))
    }

    fn switched(ticks: u64, steps: u32, to: ThreadId) -> Event<'static> {
        Event::Switched {
            place: Place { ticks, steps },
            to,
        }
    }

    fn new_thread(thread: ThreadId) -> Event<'static> {
        Event::NewThread { thread, tid: 70 }
    }

    fn turns(events: &[Event]) -> String {
        let mut turns = Turns::new(0);
        for event in events {
            turns.event(event);
        }
        let lines: Vec<String> = turns.finish().iter().map(Turn::to_string).collect();
        lines.join(", ")
    }

    const EXITED: Event = Event::Exited {
        ticks: 1,
        status: 0,
    };

    #[test]
    fn points_are_of_the_threads_own_life() {
        let quiet = |ticks, passed| Event::Instruction {
            ticks,
            what: Instruction::Quiet { passed },
        };
        let check = Event::Check {
            place: Place { ticks: 2, steps: 1 },
            registers: 0,
            memory: None,
        };
        let found = turns(&[
            returns(100),
            new_thread(1),
            returns(5),
            returns(0),
            switched(0, 3, 1),
            switched(7, 2, 0),
            // Four steps more at the same call.
            switched(0, 4, 1),
            check,
            switched(0, 5, 0),
            quiet(1, 2),
            switched(0, 0, 1),
            switched(1, 0, 0),
            EXITED,
        ]);
        let expected =
            "0 at 105+2+3, 1 at 7+0+2, 0 at 105+2+7, 1 at 9+0+6, 0 at 106+3, 1 at 10, 0 free";
        assert_eq!(found, expected);
    }

    #[test]
    fn who_waits_ends_or_yields_is_free() {
        let found = turns(&[
            call(1, SCHED_YIELD, CallEnd::Returned(0)),
            new_thread(1),
            new_thread(2),
            call(1, 202, CallEnd::Waits),
            switched(0, 0, 1),
            call(3, SCHED_YIELD, CallEnd::Returned(0)),
            switched(0, 0, 2),
            call(4, 60, CallEnd::Replaced),
            Event::EndedThread { thread: 2 },
            switched(0, 0, 1),
            // Nobody else could run.
            call(1, 202, CallEnd::Waits),
            Event::Resumed {
                result: Some(0),
                by: None,
            },
            switched(2, 0, 0),
            Event::Resumed {
                result: Some(0),
                by: None,
            },
            EXITED,
        ]);
        assert_eq!(found, "0 free, 1 free, 2 free, 1 free, 1 at 6, 0 free");
    }

    #[test]
    fn who_does_nothing_has_no_turn() {
        let found = turns(&[
            new_thread(1),
            switched(5, 0, 1),
            switched(0, 0, 0),
            switched(2, 0, 1),
            EXITED,
        ]);
        assert_eq!(found, "0 at 7, 1 free");
    }

    #[test]
    fn children_that_borrow_the_memory_have_no_turns() {
        let mut events = vec![
            call(3, 58, CallEnd::Waits),
            new_thread(1),
            switched(0, 0, 1),
            returns(50),
            Event::Exec { ticks: 4 },
            Event::EndedThread { thread: 1 },
            switched(0, 0, 0),
            Event::Resumed {
                result: Some(70),
                by: None,
            },
            new_thread(2),
            switched(2, 0, 2),
            EXITED,
        ];
        assert_eq!(turns(&events), "0 at 5, 2 free");
        // One of which has one itself.
        let inner = [
            call(1, 56, CallEnd::Waits),
            new_thread(9),
            switched(0, 0, 9),
            returns(8),
            Event::EndedThread { thread: 9 },
            switched(0, 0, 1),
            Event::Resumed {
                result: Some(70),
                by: None,
            },
        ];
        events.splice(4..4, inner);
        assert_eq!(turns(&events), "0 at 5, 2 free");
    }

    #[test]
    fn the_way_to_a_process() {
        let mut family = Family::default();
        let mut first = Children::new(0, 1);
        let fork = |stream, pid| Event::Forked {
            ticks: 0,
            stream,
            pid,
        };
        for event in [
            fork(2, 20),
            call(0, 58, CallEnd::Waits),
            Event::NewThread { thread: 1, tid: 30 },
            switched(0, 0, 1),
            fork(3, 31),
            switched(0, 0, 0),
            new_thread(2),
            switched(0, 0, 2),
            fork(4, 40),
        ] {
            first.event(&event, &mut family);
        }
        let path = |pid| family.path(1, pid);
        assert_eq!(path(1), Some(vec![]));
        assert_eq!(path(20), Some(vec![0]));
        assert_eq!(path(30), Some(vec![1]));
        assert_eq!(path(31), Some(vec![1, 0]));
        assert_eq!(path(40), Some(vec![2]));
        assert_eq!(path(50), None);
        assert_eq!((family.first_thread(2), family.first_thread(4)), (0, 2));
    }
}
