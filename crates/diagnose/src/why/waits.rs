//! A program that hangs. In: what its threads wait for. Out: who holds what since when, or who should have woken it.

use clew_recording::deadlock::{Awaited, Waiter};
use clew_recording::event::Event;
use clew_timeline::{Direction, LeftBy, Position, Reason, Stops, Watch, WatchKind};

use super::tell::quoted;
use super::{Asking, Kind};
use crate::Result;

/// Where the word that is waited at may be in a condition variable.
const CONDITION: u64 = 48;
/// Where glibc keeps a mutex's owner, and the word of a mutex that others wait for.
const GLIBC_OWNER: u64 = 8;
const GLIBC_CONTENDED: u64 = 2;
/// Bits of a lock's word that hold its owner, where it has one.
const OWNER: u64 = 0x3fff_ffff;
/// Changes of a lock's word that are looked at: others add themselves to those who wait.
const MOST_CHANGES: usize = 100;
const WAITERS: [&str; 3] = [
    "pthread_mutex_lock",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
];
const SIGNALLERS: [&str; 2] = ["pthread_cond_signal", "pthread_cond_broadcast"];

impl Asking<'_> {
    /// Explains a deadlock, if there is one.
    pub fn deadlock(&mut self) -> Result<bool> {
        let mut waiters = None;
        self.scene.debugger.events(|event, _, _| {
            if let Event::Deadlock(all) = event {
                waiters = Some(all.clone());
            }
            true
        })?;
        let Some(waiters) = waiters else {
            return Ok(false);
        };
        self.say("No thread can ever go on.".into(), None);
        self.waiting(&waiters)?;
        Ok(true)
    }

    /// Threads that are in a function of the C library that waits, and what for.
    pub fn waiting_at_the_end(&mut self) -> Result<Vec<Waiter>> {
        self.scene.debugger.stand_at_end()?;
        let threads = self.scene.debugger.threads()?;
        let seen = self.scene.debugger.calls_of(&WAITERS, 500_000)?;
        self.scene.debugger.stand_at_end()?;
        let mut waiters = Vec::new();
        for thread in &threads {
            let stack = self.scene.stack(thread.number)?;
            let inside = stack.frames.iter().any(|frame| {
                let name = frame.function.as_deref().unwrap_or("");
                name.contains("pthread_mutex_lock") || name.contains("pthread_cond_")
            });
            let calls = seen.calls.iter().rev();
            let mut open = calls.filter(|call| {
                call.thread == thread.number && matches!(call.left, LeftBy::Nothing)
            });
            let Some(call) = open.next().filter(|_| inside) else {
                continue;
            };
            let object = call.registers[7];
            let waits = match WAITERS[call.function as usize] {
                "pthread_mutex_lock" => Awaited::Lock {
                    addr: object,
                    owner: self.scene.number(object + GLIBC_OWNER, 4)?.unwrap_or(0) as i32,
                },
                _ => Awaited::Wake { addr: object },
            };
            waiters.push(Waiter {
                tid: thread.tid,
                waits,
            });
        }
        Ok(waiters)
    }

    /// Who waits for what.
    pub fn waiting(&mut self, waiters: &[Waiter]) -> Result<()> {
        let locks = waiters
            .iter()
            .any(|waiter| matches!(waiter.waits, Awaited::Lock { .. }));
        if !locks {
            return self.hang(waiters);
        }
        self.answer.kind = Kind::Deadlock;
        let end = self.scene.debugger.stand_at_end()?;
        let threads = self.scene.debugger.threads()?;
        let number = |tid: i32| {
            let found = threads.iter().find(|thread| thread.tid == tid);
            found.map(|thread| thread.number)
        };
        for waiter in waiters {
            let Some(thread) = number(waiter.tid) else {
                continue;
            };
            self.scene.go(end)?;
            let site = self.scene.site(thread)?;
            let (addr, owner) = match waiter.waits {
                Awaited::Lock { addr, owner } => (addr, owner),
                Awaited::End { tid } => {
                    let other = number(tid).map_or("another".into(), |n| format!("thread {n}"));
                    let text =
                        format!("Thread {thread} waits for {other} to end{}.", quoted(&site));
                    self.say(text, Some(site));
                    continue;
                }
                Awaited::Wake { .. } => {
                    let text = format!("Thread {thread} waits to be woken{}.", quoted(&site));
                    self.say(text, Some(site));
                    continue;
                }
            };
            let what = match self.scene.variable(addr)? {
                Some(name) => format!("`{name}`"),
                None => format!("the lock at {addr:#x}"),
            };
            let who = match number(owner) {
                Some(other) if other == thread => "which it has itself".into(),
                Some(other) => format!("which thread {other} has"),
                None => format!("which a thread of tid {owner} has"),
            };
            let text = format!("Thread {thread} waits for {what}, {who}{}.", quoted(&site));
            self.add(text, Some(site), false, true);
            if let Some((position, by)) = self.taken(addr, owner)? {
                let site = self.scene.site_at(position, by)?;
                self.say(
                    format!("Thread {by} took {what} there{}.", quoted(&site)),
                    Some(site),
                );
            }
        }
        Ok(())
    }

    /// Where a thread took the lock that it has: back to where the owner wasn't written there yet.
    fn taken(&mut self, lock: u64, owner: i32) -> Result<Option<(Position, u32)>> {
        let end = self.scene.debugger.stand_at_end()?;
        let word = self.scene.number(lock, 4)?.unwrap_or(0);
        let addr = match word {
            GLIBC_CONTENDED => lock.wrapping_add(GLIBC_OWNER),
            _ => lock,
        };
        self.scene.debugger.timeline().set_stops(Stops {
            watches: vec![Watch {
                addr,
                len: 4,
                kind: WatchKind::Change,
            }],
            ..Stops::default()
        });
        let mut found = None;
        for _ in 0..MOST_CHANGES {
            let stop = self
                .scene
                .debugger
                .timeline()
                .run(Direction::Backward, None)?;
            if !matches!(stop.reason, Reason::Watch { .. }) {
                break;
            }
            // It stands before the change.
            let word = self.scene.number(addr, 4)?.unwrap_or(0);
            if word & OWNER != u64::from(owner as u32) {
                found = Some((self.scene.here()?, stop.thread));
                break;
            }
        }
        self.scene.debugger.timeline().set_stops(Stops::default());
        self.scene.go(end)?;
        Ok(found)
    }

    /// Threads wait for somebody to wake them, and nobody is left.
    fn hang(&mut self, waiters: &[Waiter]) -> Result<()> {
        self.answer.kind = Kind::Hang;
        let end = self.scene.debugger.stand_at_end()?;
        let threads = self.scene.debugger.threads()?;
        for waiter in waiters {
            let thread = threads.iter().find(|thread| thread.tid == waiter.tid);
            let Some(number) = thread.map(|thread| thread.number) else {
                continue;
            };
            self.scene.go(end)?;
            let site = self.scene.site(number)?;
            let inside = site.inside.clone().unwrap_or_default();
            let what = match waiter.waits {
                Awaited::End { tid } => format!("for thread of tid {tid} to end"),
                Awaited::Wake { addr } => match self.scene.variable(addr)? {
                    Some(name) => format!("to be woken at `{name}`"),
                    None => format!("to be woken at {addr:#x}"),
                },
                Awaited::Lock { .. } => "for a lock".into(),
            };
            let within = match inside.is_empty() {
                true => String::new(),
                false => format!(" (in {inside})"),
            };
            let cause = matches!(waiter.waits, Awaited::Wake { .. });
            self.add(
                format!("Thread {number} waits {what}{within}{}.", quoted(&site)),
                Some(site),
                false,
                cause,
            );
            if let Awaited::Wake { addr } = waiter.waits {
                self.signals(addr)?;
            }
        }
        Ok(())
    }

    /// Who signalled a condition, before.
    fn signals(&mut self, address: u64) -> Result<()> {
        let seen = self.scene.debugger.calls_of(&SIGNALLERS, 100_000)?;
        let low = address.saturating_sub(CONDITION);
        let of_it = |argument: u64| (low..=address).contains(&argument);
        let all = seen.calls.iter().filter(|call| of_it(call.registers[7]));
        let all: Vec<_> = all.collect();
        match all.last() {
            Some(last) => {
                let position = self.scene.position(last.at)?;
                let site = self.scene.site_at(position, last.thread)?;
                let count = match all.len() {
                    1 => "It was signalled once".to_string(),
                    n => format!("It was signalled {n} times, the last time"),
                };
                self.say(
                    format!(
                        "{count}, by thread {}, before that wait{}.",
                        last.thread,
                        quoted(&site)
                    ),
                    Some(site),
                );
            }
            None => self.say("Nobody ever signalled a condition there.".into(), None),
        }
        Ok(())
    }

    /// What threads do at the end.
    pub fn where_threads_are(&mut self) -> Result<()> {
        let end = self.scene.debugger.stand_at_end()?;
        let threads = self.scene.debugger.threads()?;
        for thread in threads.iter().take(8) {
            self.scene.go(end)?;
            let site = self.scene.site(thread.number)?;
            let what = match &thread.waits {
                Some(call) => format!("waits in {call}"),
                None => "runs".into(),
            };
            self.say(
                format!("Thread {} {what}{}.", thread.number, quoted(&site)),
                Some(site),
            );
        }
        Ok(())
    }
}
