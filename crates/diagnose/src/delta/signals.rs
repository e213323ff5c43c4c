//! Orders with a handler, brought about. In: a suspect with a handler in it, and a run in which a thread sends the signal. Out:
//! schedules in which that thread sends it while the other one is between its two accesses, or not before it is past both.
//!
//! What a schedule can't choose is when a timer or another process sends a signal: there is nothing to try then.

use std::collections::HashMap;
use std::path::Path;

use clew_debugger::Debugger;
use clew_hunt::idiom::profile::{Access, Profile, busiest};
use clew_hunt::idiom::steer::{Course, Place};
use clew_hunt::turns;
use clew_order::story::{granules, story};
use clew_recording::event::{Event, ThreadId};
use clew_recording::script::{End, Point, Script, Turn};

use super::confirm::Unconfirmed;
use super::patterns::Key;
use super::trace::{line_number, ordered};
use crate::Result;
use clew_order::Names;

const SIGRETURN: u32 = 15;
const KILL: u32 = 62;
const TKILL: u32 = 200;
const TGKILL: u32 = 234;
/// Schedules that are tried for a run.
const MOST: usize = 6;

/// A signal that a thread sent to another one of its process, and that has a handler.
struct Sent {
    /// The call, and where in the sender's life it is over.
    event: u64,
    sender: ThreadId,
    over: Point,
    to: ThreadId,
    /// When the handler began, and how long it took in the ticks of its thread's life; None if another one that was pending
    /// stood for it.
    came: Option<u64>,
    took: u64,
}

/// The same, by events: the call, the handler's beginning and its end.
struct Delivered {
    call: u64,
    sender: ThreadId,
    signo: i32,
    to: ThreadId,
    came: Option<u64>,
    left: Option<u64>,
}

/// A run: what its threads did outside of handlers, and who sent signals.
pub struct Handled {
    course: Course,
    lines: Vec<u64>,
    sent: Vec<Sent>,
}

/// Looks at a run.
pub fn handled(
    folder: &Path,
    ranges: &[std::ops::Range<u64>],
    open: &dyn Fn(&Path) -> Result<Debugger>,
) -> std::result::Result<Handled, Unconfirmed> {
    let mut debugger = open(folder)?;
    let stream = debugger.stream();
    let mut calls: Vec<(u64, ThreadId, i32)> = Vec::new();
    let mut delivered: Vec<Delivered> = Vec::new();
    debugger.events(|event, number, thread| {
        match event {
            Event::Call(call) if [KILL, TKILL, TGKILL].contains(&call.nr) => {
                let signo = call.args[if call.nr == TGKILL { 2 } else { 1 }];
                calls.push((number, thread, signo as i32));
            }
            Event::Signal { signo, .. } => {
                let by = |one: &&(u64, ThreadId, i32)| one.1 != thread && one.2 == *signo;
                if let Some(&(call, sender, _)) = calls.iter().rev().find(by) {
                    delivered.push(Delivered {
                        call,
                        sender,
                        signo: *signo,
                        to: thread,
                        came: Some(number),
                        left: None,
                    });
                }
            }
            Event::Call(call) if call.nr == SIGRETURN => {
                let last = delivered.iter_mut().rfind(|one| one.to == thread);
                if let Some(last) = last.filter(|last| last.left.is_none()) {
                    last.left = Some(number);
                }
            }
            _ => {}
        }
        true
    })?;
    add_pending(&mut delivered, &calls);
    let log = debugger.recording().stream(stream);
    let log = log.map_err(|error| crate::Error::Recording(error.to_string()))?;
    let (_, lives) = busiest(debugger.recording())?;
    let (timeline, program) = debugger.timeline_and_program();
    let (mut memory, _) = timeline.sharing().map_err(crate::Error::from)?;
    memory.extend(granules(ranges));
    let story = story(timeline, program, log, memory).map_err(ordered)?;
    let names = Names::new(program.catalog(), &story.modules, &story.gathered.threads);
    let own = story.accesses.iter();
    let own: Vec<_> = own
        .filter(|one| !one.freed && one.handler.is_none())
        .collect();
    let marks: Vec<(u64, u64)> = own.iter().map(|one| (one.at.event, one.at.ticks)).collect();
    let points = turns::points(folder, stream, &marks)?;
    let mut accesses = Vec::new();
    for (one, point) in own.iter().zip(points) {
        accesses.push(Access {
            thread: one.thread,
            point,
            pc: one.site,
            addr: one.addr,
            len: u32::try_from(one.len).unwrap_or(u32::MAX),
            write: one.write,
            locked: one.locked,
            event: one.at.event,
        });
    }
    let each = |one: &Delivered| [Some(one.call), one.came, one.left];
    let mut events: Vec<u64> = delivered.iter().flat_map(each).flatten().collect();
    events.sort_unstable();
    events.dedup();
    let marks: Vec<(u64, u64)> = events.iter().map(|event| (*event, 0)).collect();
    let points = turns::points(folder, stream, &marks)?;
    let points: HashMap<u64, Point> = events.into_iter().zip(points).collect();
    let at = |event: u64| points.get(&event).copied().unwrap_or_default();
    let mut sent = Vec::new();
    for one in &delivered {
        let took = one.came.zip(one.left);
        let took = took.map(|(came, left)| at(left).ticks.saturating_sub(at(came).ticks));
        sent.push(Sent {
            event: one.call,
            sender: one.sender,
            over: at(one.call),
            to: one.to,
            came: one.came,
            took: took.unwrap_or(0),
        });
    }
    Ok(Handled {
        lines: own
            .iter()
            .map(|one| line_number(&names, one.site))
            .collect(),
        sent,
        course: Course::new(Profile {
            process: turns::of(folder)?.process,
            lives,
            own: Vec::new(),
            accesses,
            length: None,
        }),
    })
}

/// Calls that sent a signal while another one like it was pending: a schedule can let each of them be the only one.
fn add_pending(delivered: &mut Vec<Delivered>, calls: &[(u64, ThreadId, i32)]) {
    for &(call, sender, signo) in calls {
        if delivered.iter().any(|one| one.call == call) {
            continue;
        }
        let like = |one: &&Delivered| one.sender == sender && one.signo == signo;
        if let Some(to) = delivered.iter().find(like).map(|one| one.to) {
            delivered.push(Delivered {
                call,
                sender,
                signo,
                to,
                came: None,
                left: None,
            });
        }
    }
    delivered.sort_by_key(|one| (one.call, one.came));
}

impl Handled {
    fn access(&self, n: usize) -> &Access {
        &self.course.profile().accesses[n]
    }

    /// Accesses of a thread on one of these lines, within these.
    fn on(&self, thread: ThreadId, line: u64, range: std::ops::Range<usize>) -> Vec<usize> {
        let there = |n: &usize| self.lines[*n] == line && self.access(*n).thread == thread;
        range.filter(there).collect()
    }

    /// The first access behind an event.
    fn behind(&self, event: u64) -> usize {
        let accesses = &self.course.profile().accesses;
        accesses.partition_point(|access| access.event < event)
    }

    /// A turn that ends right before an access, or behind it. Handlers that don't run before it this time, because nobody sends
    /// their signals, took ticks of the thread's life.
    fn hold(&self, p: usize, after: bool) -> Turn {
        let access = self.access(p);
        let missing = self.sent.iter().filter(|sent| {
            let came = sent.came.is_some_and(|came| came <= access.event);
            sent.to == access.thread && came && !self.sends(sent, p)
        });
        let missing: u64 = missing.map(|sent| sent.took).sum();
        let mut from = access.point;
        from.ticks = from.ticks.saturating_sub(missing);
        Turn {
            thread: access.thread,
            end: End::Near {
                from,
                pc: access.pc,
                after,
            },
        }
    }

    /// Whether a signal is sent by who follows the run up to an access: threads go on until they touch what is shared again.
    fn sends(&self, sent: &Sent, p: usize) -> bool {
        let own = |n: &usize| self.access(*n).thread == sent.sender;
        let follows = (0..p).any(|n| own(&n));
        let all = self.course.profile().accesses.len();
        let next = (p..all).find(own);
        follows && next.is_none_or(|next| self.access(next).event > sent.event)
    }

    /// Schedules in which the signal comes right behind the interrupted thread's first access, or before it if the handler's is the
    /// first of all.
    pub fn forced(&self, key: &Key) -> Vec<Script> {
        let Some((first, _)) = key.sites.iter().find(|(_, handler)| !handler) else {
            return Vec::new();
        };
        let handler_first = key.sites.first().is_some_and(|(_, handler)| *handler);
        // After a call that its thread makes later, earlier ones have sent theirs too: a handler that undoes what it did shows
        // nothing after an even number. So every call is tried at one place before another place is.
        let mut all: Vec<(usize, usize, &Sent)> = Vec::new();
        for sent in &self.sent {
            let before = self.on(sent.to, *first, 0..self.behind(sent.event));
            let places = before.iter().rev().take(MOST).enumerate();
            all.extend(places.map(|(rank, &p)| (rank, p, sent)));
        }
        all.sort_by_key(|(rank, _, sent)| (*rank, sent.event));
        all.dedup_by_key(|(rank, p, sent)| (*rank, *p, sent.event));
        let scripts = all.into_iter().filter_map(|(_, p, sent)| {
            let then = [
                self.hold(p, !handler_first),
                Turn {
                    thread: sent.sender,
                    end: End::At(sent.over),
                },
                free(sent.to),
                free(sent.sender),
            ];
            self.course.led(p, &then)
        });
        scripts.take(MOST).collect()
    }

    /// A schedule in which who sends the signal is held until the other is past its last access.
    pub fn forbidden(&self, key: &Key) -> Option<Script> {
        let (first, _) = key.sites.iter().find(|(_, handler)| !handler)?;
        let (last, _) = key.sites.iter().rfind(|(_, handler)| !handler)?;
        // The last that was sent while the other one was between both; it may send many.
        let between = |sent: &&Sent| {
            let before = (0..self.behind(sent.event)).rev();
            let mut own = before.filter(|&n| {
                self.access(n).thread == sent.to && [*first, *last].contains(&self.lines[n])
            });
            own.next().is_some_and(|n| self.lines[n] == *first)
        };
        let mut came = self.sent.iter().filter(|sent| sent.came.is_some());
        let any = came.clone().next_back();
        let sent = came.rfind(between).or(any)?;
        let from = self.behind(sent.event);
        let all = self.course.profile().accesses.len();
        let c = *self.on(sent.to, *last, from..all).first()?;
        let held = Point {
            calls: sent.over.calls.saturating_sub(1),
            steps: 0,
            ..sent.over
        };
        let then = [
            Turn {
                thread: sent.sender,
                end: End::At(held),
            },
            self.course.turn(Place::after(c)),
            free(sent.sender),
            free(sent.to),
        ];
        self.course.led(from, &then)
    }
}

fn free(thread: ThreadId) -> Turn {
    Turn {
        thread,
        end: End::Free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::patterns::{Note, Shape};

    const READ: u64 = 28;
    const WRITE: u64 = 18;

    fn point(ticks: u64) -> Point {
        Point {
            ticks,
            ..Point::default()
        }
    }

    /// Thread 0 reads something at these ticks and events; thread 1 touches nothing, and sends signals.
    fn run(reads: &[(u64, u64)], sent: Vec<Sent>) -> Handled {
        let accesses = reads.iter().map(|&(ticks, event)| Access {
            thread: 0,
            point: point(ticks),
            pc: 0x401000,
            addr: 0x404000,
            len: 4,
            write: false,
            locked: false,
            event,
        });
        Handled {
            course: Course::new(Profile {
                accesses: accesses.collect(),
                ..Profile::default()
            }),
            lines: vec![READ; reads.len()],
            sent,
        }
    }

    fn sent(event: u64, over: u64, came: Option<u64>, took: u64) -> Sent {
        Sent {
            event,
            sender: 1,
            over: point(over),
            to: 0,
            came,
            took,
        }
    }

    #[test]
    fn handlers_that_do_not_run_take_no_ticks() {
        // The handler ran between the two reads, for 7 ticks; in the schedule nobody sends its signal before the second.
        let run = run(&[(100, 5), (150, 20)], vec![sent(10, 40, Some(11), 7)]);
        let from = |p: usize| match run.hold(p, true).end {
            End::Near { from, .. } => from.ticks,
            _ => 0,
        };
        assert_eq!((from(0), from(1)), (100, 143));
    }

    #[test]
    fn each_signal_is_tried_before_other_places_are() {
        let calls = vec![
            sent(30, 40, None, 0),
            sent(31, 80, Some(33), 1),
            sent(32, 120, None, 0),
        ];
        let key = Key {
            shape: Shape::Rwr,
            names: vec!["columns".into()],
            sites: vec![(READ, false), (WRITE, true), (READ, false)],
            note: Note::Any,
        };
        let scripts = run(&[(100, 5), (150, 20)], calls).forced(&key);
        let tried = scripts.iter().map(|script| {
            let ends = script.turns.iter().map(|turn| turn.to_string());
            ends.take(2).collect::<Vec<_>>().join("; ")
        });
        let at = |from, over| format!("0 after 0x401000 from {from}; 1 at {over}");
        let mut expected = Vec::new();
        for from in [150, 100] {
            expected.extend([40, 80, 120].map(|over| at(from, over)));
        }
        assert_eq!(tried.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_handler_that_comes_first_comes_before_the_access() {
        let key = Key {
            shape: Shape::Wr,
            names: vec!["columns".into()],
            sites: vec![(WRITE, true), (READ, false)],
            note: Note::Any,
        };
        let scripts = run(&[(100, 5)], vec![sent(30, 40, Some(33), 1)]).forced(&key);
        let first = scripts[0].turns[0].to_string();
        assert_eq!(first, "0 before 0x401000 from 100");
    }

    #[test]
    fn signals_that_found_another_one_pending_count() {
        let mut delivered = vec![Delivered {
            call: 12,
            sender: 1,
            signo: 28,
            to: 0,
            came: Some(13),
            left: Some(14),
        }];
        add_pending(&mut delivered, &[(10, 1, 28), (11, 1, 10), (12, 1, 28)]);
        let told = delivered.iter().map(|one| (one.call, one.to, one.came));
        assert_eq!(told.collect::<Vec<_>>(), [(10, 0, None), (12, 0, Some(13))]);
    }
}
