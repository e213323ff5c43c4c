//! What a run showed of the memory that its threads share. In: the words of `clew hunt-profile`. Out: accesses in the order in
//! which they happened, who made which thread, and where the program's own code is.
//!
//! As text, so that it can be made by another process: a head, then one fact a line.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use clew_recording::event::{Event, Record, StreamId, ThreadId};
use clew_recording::reader::Recording;
use clew_recording::script::Point;

use crate::HuntError;
use crate::measure::Schedule;

/// The hidden command that profiles a recording.
pub const COMMAND: &str = "hunt-profile";

const HEAD: &str = "clew accesses 1";

/// One access to memory that threads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub thread: ThreadId,
    /// The tick or call before it, in the thread's own life.
    pub point: Point,
    pub pc: u64,
    pub addr: u64,
    pub len: u32,
    pub write: bool,
    /// It locks the bus: part of a lock, or of an algorithm without one.
    pub locked: bool,
    /// So many events of the process had happened.
    pub event: u64,
}

impl Access {
    pub fn overlaps(&self, other: &Access) -> bool {
        let end = |access: &Access| access.addr.saturating_add(u64::from(access.len));
        self.addr < end(other) && other.addr < end(self)
    }

    /// Their order makes a difference.
    pub fn conflicts(&self, other: &Access) -> bool {
        self.thread != other.thread && (self.write || other.write) && self.overlaps(other)
    }
}

/// When a thread was there, in events of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub maker: ThreadId,
    pub begun: u64,
    pub ended: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// As in a [`clew_recording::script::Script`].
    pub process: Vec<u64>,
    /// Of all threads but the first.
    pub lives: BTreeMap<ThreadId, Life>,
    /// Where the program's own file is mapped; everything else is libraries.
    pub own: Vec<(u64, u64)>,
    pub accesses: Vec<Access>,
    /// How much work the run was, if it was measured. Not part of the text.
    pub length: Option<u64>,
}

impl Profile {
    pub fn is_own(&self, pc: u64) -> bool {
        self.own.iter().any(|&(from, to)| (from..to).contains(&pc))
    }

    /// `thread` was made by `maker`, or by a thread that it made, after that event.
    pub fn made_after(&self, thread: ThreadId, maker: ThreadId, event: u64) -> bool {
        let mut thread = thread;
        // A maker has a smaller number than what it makes.
        while let Some(life) = self.lives.get(&thread) {
            if life.begun <= event {
                return false;
            }
            if life.maker == maker {
                return true;
            }
            if life.maker >= thread {
                return false;
            }
            thread = life.maker;
        }
        false
    }
}

/// The stream with the most work, as [`crate::turns`] chooses it, and when its threads were there.
pub fn busiest(recording: &Recording) -> Result<(StreamId, BTreeMap<ThreadId, Life>), HuntError> {
    let mut most = (Schedule::default(), 0, BTreeMap::new());
    for stream in recording.streams() {
        let (work, lives) = life(recording, stream.id)?;
        if (work.work, work.threads) >= (most.0.work, most.0.threads) {
            most = (work, stream.id, lives);
        }
    }
    Ok((most.1, most.2))
}

fn life(
    recording: &Recording,
    stream: StreamId,
) -> Result<(Schedule, BTreeMap<ThreadId, Life>), HuntError> {
    let mut reader = recording
        .stream(stream)
        .map_err(|why| HuntError::Recording {
            path: recording.folder().into(),
            why: why.to_string(),
        })?;
    let mut work = Schedule {
        threads: 1,
        ..Schedule::default()
    };
    let mut lives = BTreeMap::new();
    let (mut number, mut current) = (0, 0);
    // A torn end: what there is will do.
    while let Ok(Some(record)) = reader.next() {
        let Record::Event(event) = record else {
            continue;
        };
        work.count(&event);
        number += 1;
        match event {
            Event::Switched { to, .. } => current = to,
            Event::NewThread { thread, .. } => {
                let life = Life {
                    maker: current,
                    begun: number,
                    ended: None,
                };
                lives.insert(thread, life);
            }
            Event::EndedThread { thread } => {
                if let Some(life) = lives.get_mut(&thread) {
                    life.ended = Some(number);
                }
            }
            _ => {}
        }
    }
    Ok((work, lives))
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for child in &self.process {
            writeln!(f, "child {child}")?;
        }
        for (from, to) in &self.own {
            writeln!(f, "own {from} {to}")?;
        }
        for (thread, life) in &self.lives {
            let (maker, begun) = (life.maker, life.begun);
            // 0: there is no event before the first.
            let ended = life.ended.unwrap_or(0);
            writeln!(f, "thread {thread} {maker} {begun} {ended}")?;
        }
        for a in &self.accesses {
            let Point {
                ticks,
                calls,
                steps,
            } = a.point;
            writeln!(
                f,
                "access {} {ticks} {calls} {steps} {} {} {} {} {} {}",
                a.thread,
                a.pc,
                a.addr,
                a.len,
                u8::from(a.write),
                u8::from(a.locked),
                a.event,
            )?;
        }
        Ok(())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Profile, String> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err("not a profile".into());
        }
        let mut profile = Profile::default();
        for line in lines {
            let bad = || format!("not a profile: {line:?}");
            profile.line(line).ok_or_else(bad)?;
        }
        Ok(profile)
    }
}

impl Profile {
    fn line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let what = words.next()?;
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        match (what, &numbers?[..]) {
            ("child", &[child]) => self.process.push(child),
            ("own", &[from, to]) => self.own.push((from, to)),
            ("thread", &[thread, maker, begun, ended]) => {
                let life = Life {
                    maker: maker.try_into().ok()?,
                    begun,
                    ended: (ended != 0).then_some(ended),
                };
                self.lives.insert(thread.try_into().ok()?, life);
            }
            (
                "access",
                &[
                    thread,
                    ticks,
                    calls,
                    steps,
                    pc,
                    addr,
                    len,
                    write,
                    locked,
                    event,
                ],
            ) => self.accesses.push(Access {
                thread: thread.try_into().ok()?,
                point: Point {
                    ticks,
                    calls: calls.try_into().ok()?,
                    steps: steps.try_into().ok()?,
                },
                pc,
                addr,
                len: len.try_into().ok()?,
                write: write != 0,
                locked: locked != 0,
                event,
            }),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idiom::testing::Story;

    #[test]
    fn written_and_read_again() {
        let mut story = Story::default();
        story.made(1, 0).made(2, 1);
        story.read(1, 0x10, 0x1000).locked(2, 0x20, 0x1000);
        let mut profile = story.profile();
        profile.process = vec![2, 0];
        profile.own = vec![(0x10, 0x20)];
        assert_eq!(profile.to_string().parse(), Ok(profile));
        assert!("access 1\n".parse::<Profile>().is_err());
        assert!(format!("{HEAD}\naccess 1 2\n").parse::<Profile>().is_err());
    }

    #[test]
    fn who_was_made_when() {
        let mut story = Story::default();
        story.write(0, 0x10, 0x1000).made(1, 0).made(2, 1);
        story.write(0, 0x10, 0x1000);
        let profile = story.profile();
        let (before, after) = (profile.accesses[0].event, profile.accesses[1].event);
        assert!(profile.made_after(1, 0, before));
        assert!(profile.made_after(2, 0, before));
        assert!(!profile.made_after(2, 0, after));
        assert!(!profile.made_after(1, 2, before));
        assert!(!profile.made_after(0, 1, before));
    }

    #[test]
    fn conflicts_are_by_bytes() {
        let access = |thread, addr, len, write| Access {
            thread,
            addr,
            len,
            write,
            point: Point::default(),
            pc: 1,
            locked: false,
            event: 0,
        };
        let one = access(1, 100, 4, true);
        assert!(one.conflicts(&access(2, 103, 1, false)));
        assert!(!one.conflicts(&access(2, 104, 4, true)));
        assert!(!one.conflicts(&access(1, 100, 4, true)));
        assert!(!access(1, 100, 4, false).conflicts(&access(2, 100, 4, false)));
    }
}
