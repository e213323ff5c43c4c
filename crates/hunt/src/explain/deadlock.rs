//! Who waits for whom, at which lines. In: the engine's note, and the end of the process. Out: a row for each thread.

use clew_timeline::{Direction, Position, Reason, Result, Stops, Target, Watch, WatchKind};

use super::spot::{Spot, View};
use super::{Waiting, WaitsFor};

/// Where glibc keeps a mutex's owner.
const GLIBC_OWNER: u64 = 8;
/// glibc's word of a mutex that others wait for.
const GLIBC_CONTENDED: u32 = 2;
/// Bits of a lock's word that hold its owner, where it has one.
const OWNER: u32 = 0x3fff_ffff;
/// Changes of a lock's word that are looked at: others add themselves to those who wait.
const MOST_CHANGES: usize = 100;

/// A line of the note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    tid: i32,
    waits_for: WaitsFor,
    address: Option<u64>,
    other: Option<i32>,
}

/// The note's lines, with where each thread is.
pub(super) fn explain(view: &mut View, note: &str) -> Result<Vec<Waiting>> {
    view.timeline.seek(Target::End)?;
    let end = view.timeline.position()?;
    let threads = view.threads()?;
    let mut all = Vec::new();
    for told in note.lines().filter_map(line) {
        let Some((_, who)) = threads.iter().find(|(_, who)| who.tid == told.tid) else {
            continue;
        };
        let at = view.spot(who.number)?;
        let variable = match told.address {
            Some(address) => view.variable(address)?,
            None => None,
        };
        all.push(Waiting {
            thread: who.clone(),
            waits_for: told.waits_for,
            lock: told.address.map(|address| format!("{address:#x}")),
            variable,
            other: told.other,
            at,
            taken: None,
        });
    }
    // Afterwards, because this one goes elsewhere.
    for waiting in all.iter_mut().filter(|one| one.waits_for == WaitsFor::Lock) {
        let address = waiting.lock.as_deref().and_then(number);
        if let (Some(address), Some(owner)) = (address, waiting.other) {
            view.timeline.seek(Target::Position(end))?;
            waiting.taken = taken(view, address, owner, end)?;
        }
    }
    Ok(all)
}

/// Where a thread took the lock that it has.
fn taken(view: &mut View, lock: u64, owner: i32, end: Position) -> Result<Option<Spot>> {
    let word = |view: &mut View, address: u64| -> Result<u32> {
        let mut bytes = [0; 4];
        view.timeline.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    };
    let addr = match word(view, lock)? {
        GLIBC_CONTENDED => lock.wrapping_add(GLIBC_OWNER),
        _ => lock,
    };
    view.timeline.set_stops(Stops {
        watches: vec![Watch {
            addr,
            len: 4,
            kind: WatchKind::Change,
        }],
        ..Stops::default()
    });
    let mut found = None;
    for _ in 0..MOST_CHANGES {
        let stop = view.timeline.run(Direction::Backward, None)?;
        if !matches!(stop.reason, Reason::Watch { .. }) {
            break;
        }
        // It stands before the change.
        if word(view, addr)? & OWNER != owner as u32 {
            found = Some(view.spot(stop.thread)?);
            break;
        }
    }
    view.timeline.set_stops(Stops::default());
    view.timeline.seek(Target::Position(end))?;
    Ok(found)
}

/// Reads what `crates/engine/src/guest/threads/deadlock.rs` writes.
fn line(text: &str) -> Option<Told> {
    let rest = text.strip_prefix("thread ")?;
    let (tid, rest) = rest.split_once(" waits ")?;
    let tid = tid.parse().ok()?;
    if let Some(rest) = rest.strip_prefix("for the lock at ") {
        let (address, owner) = rest.split_once(", which ")?;
        let other = match owner {
            "it has itself" => tid,
            owner => owner
                .strip_prefix("thread ")?
                .strip_suffix(" has")?
                .parse()
                .ok()?,
        };
        return Some(Told {
            tid,
            waits_for: WaitsFor::Lock,
            address: Some(number(address)?),
            other: Some(other),
        });
    }
    if let Some(rest) = rest.strip_prefix("for thread ") {
        return Some(Told {
            tid,
            waits_for: WaitsFor::End,
            address: None,
            other: Some(rest.strip_suffix(" to end")?.parse().ok()?),
        });
    }
    let address = rest.strip_prefix("at ")?.strip_suffix(" to be woken")?;
    Some(Told {
        tid,
        waits_for: WaitsFor::Wake,
        address: Some(number(address)?),
        other: None,
    })
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_understood() {
        let told = |tid, waits_for, address, other| {
            Some(Told {
                tid,
                waits_for,
                address,
                other,
            })
        };
        for (text, expected) in [
            ("no thread can ever go on", None),
            (
                "thread 7 waits for thread 8 to end",
                told(7, WaitsFor::End, None, Some(8)),
            ),
            (
                "thread 7 waits for the lock at 0x1f0, which thread 8 has",
                told(7, WaitsFor::Lock, Some(0x1f0), Some(8)),
            ),
            (
                "thread 7 waits for the lock at 0x1f0, which it has itself",
                told(7, WaitsFor::Lock, Some(0x1f0), Some(7)),
            ),
            (
                "thread 7 waits at 0x1f0 to be woken",
                told(7, WaitsFor::Wake, Some(0x1f0), None),
            ),
            ("thread x waits at 0x1f0 to be woken", None),
        ] {
            assert_eq!(line(text), expected, "{text}");
        }
    }
}
