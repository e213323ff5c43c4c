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
/// Places that are tried in a run.
const MOST: usize = 4;

/// A signal that a thread sent to another one of its process, and that had a handler.
struct Sent {
    /// The call, and where in the sender's life it is over.
    event: u64,
    sender: ThreadId,
    over: Point,
    to: ThreadId,
    /// When the handler began, and how long it took in the ticks of its thread's life.
    came: u64,
    took: u64,
}

/// The same, by events: the call, the handler's beginning and its end.
struct Delivered {
    call: u64,
    sender: ThreadId,
    to: ThreadId,
    came: u64,
    left: u64,
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
                        to: thread,
                        came: number,
                        left: number,
                    });
                }
            }
            Event::Call(call) if call.nr == SIGRETURN => {
                let last = delivered.iter_mut().rfind(|one| one.to == thread);
                if let Some(last) = last.filter(|last| last.left == last.came) {
                    last.left = number;
                }
            }
            _ => {}
        }
        true
    })?;
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
    let each = |one: &Delivered| [one.call, one.came, one.left];
    let mut events: Vec<u64> = delivered.iter().flat_map(each).collect();
    events.sort_unstable();
    events.dedup();
    let marks: Vec<(u64, u64)> = events.iter().map(|event| (*event, 0)).collect();
    let points = turns::points(folder, stream, &marks)?;
    let points: HashMap<u64, Point> = events.into_iter().zip(points).collect();
    let at = |event: u64| points.get(&event).copied().unwrap_or_default();
    let mut sent = Vec::new();
    for one in &delivered {
        sent.push(Sent {
            event: one.call,
            sender: one.sender,
            over: at(one.call),
            to: one.to,
            came: one.came,
            took: at(one.left).ticks.saturating_sub(at(one.came).ticks),
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

    /// A turn that ends right behind an access. Handlers that don't run before it this time, because nobody sends their signals,
    /// took ticks of the thread's life.
    fn hold_after(&self, p: usize) -> Turn {
        let access = self.access(p);
        let missing = self.sent.iter().filter(|sent| {
            sent.to == access.thread && sent.came <= access.event && !self.sends(sent, p)
        });
        let missing: u64 = missing.map(|sent| sent.took).sum();
        let mut from = access.point;
        from.ticks = from.ticks.saturating_sub(missing);
        Turn {
            thread: access.thread,
            end: End::Near {
                from,
                pc: access.pc,
                after: true,
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

    /// Schedules in which the signal comes right behind the interrupted thread's first access.
    pub fn forced(&self, key: &Key) -> Vec<Script> {
        let Some((first, _)) = key.sites.iter().find(|(_, handler)| !handler) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for sent in &self.sent {
            let before = self.on(sent.to, *first, 0..self.behind(sent.event));
            for &p in before.iter().rev().take(MOST) {
                let then = [
                    self.hold_after(p),
                    Turn {
                        thread: sent.sender,
                        end: End::At(sent.over),
                    },
                    free(sent.to),
                    free(sent.sender),
                ];
                all.extend(self.course.led(p, &then));
            }
        }
        all.truncate(MOST);
        all
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
        let sent = self.sent.iter().rfind(between).or(self.sent.last())?;
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
