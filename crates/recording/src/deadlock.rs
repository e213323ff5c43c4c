//! Threads that wait for each other for good: who waits for what. In words, and back from the notes that recordings of the
//! first two formats have instead of an event.

use std::fmt;

/// What notes about deadlocks began with.
const NOTE: &str = "deadlock: ";
/// How the words begin.
pub const NO_THREAD: &str = "no thread can ever go on";

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The lock at this address, which a thread has.
    Lock { addr: u64, owner: i32 },
    /// The end of a thread.
    End { tid: i32 },
    /// A condition, a semaphore, anything: at this address.
    Wake { addr: u64 },
}

/// A thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub tid: i32,
    pub waits: Awaited,
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} waits ", self.tid)?;
        match self.waits {
            Awaited::Lock { addr, owner } if owner == self.tid => {
                write!(f, "for the lock at {addr:#x}, which it has itself")
            }
            Awaited::Lock { addr, owner } => {
                write!(f, "for the lock at {addr:#x}, which thread {owner} has")
            }
            Awaited::End { tid } => write!(f, "for thread {tid} to end"),
            Awaited::Wake { addr } => write!(f, "at {addr:#x} to be woken"),
        }
    }
}

/// All of them, a line for each.
pub fn text(waiters: &[Waiter]) -> String {
    let lines = waiters.iter().map(Waiter::to_string);
    let all: Vec<String> = std::iter::once(NO_THREAD.into()).chain(lines).collect();
    all.join("\n")
}

/// What an old note tells; `None` if it is about something else.
pub fn of_note(note: &str) -> Option<Vec<Waiter>> {
    let text = note.strip_prefix(NOTE)?;
    Some(text.lines().filter_map(line).collect())
}

fn line(text: &str) -> Option<Waiter> {
    let rest = text.strip_prefix("thread ")?;
    let (tid, rest) = rest.split_once(" waits ")?;
    let tid = tid.parse().ok()?;
    let waits = if let Some(rest) = rest.strip_prefix("for the lock at ") {
        let (addr, owner) = rest.split_once(", which ")?;
        let owner = match owner {
            "it has itself" => tid,
            owner => owner
                .strip_prefix("thread ")?
                .strip_suffix(" has")?
                .parse()
                .ok()?,
        };
        Awaited::Lock {
            addr: number(addr)?,
            owner,
        }
    } else if let Some(rest) = rest.strip_prefix("for thread ") {
        Awaited::End {
            tid: rest.strip_suffix(" to end")?.parse().ok()?,
        }
    } else {
        let addr = rest.strip_prefix("at ")?.strip_suffix(" to be woken")?;
        Awaited::Wake {
            addr: number(addr)?,
        }
    };
    Some(Waiter { tid, waits })
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_understood() {
        let waiter = |tid, waits| Waiter { tid, waits };
        let addr = 0x1f0;
        let all = vec![
            waiter(7, Awaited::End { tid: 8 }),
            waiter(8, Awaited::Lock { addr, owner: 7 }),
            waiter(9, Awaited::Lock { addr, owner: 9 }),
            waiter(10, Awaited::Wake { addr }),
        ];
        let note = format!("{NOTE}{}\nthread x waits at 0x1f0 to be woken", text(&all));
        assert_eq!(of_note(&note), Some(all));
        assert_eq!(of_note("ioctl 0x1234 isn't known"), None);
        assert!(text(&[]).starts_with(NO_THREAD));
    }
}
