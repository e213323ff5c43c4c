//! Who waits for whom, at which lines. In: the event that tells it, and the end of the process. Out: a row for each thread.

use clew_recording::deadlock::{Awaited, Waiter};
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

/// The threads of a deadlock, with where each is.
pub(super) fn explain(view: &mut View, waiters: &[Waiter]) -> Result<Vec<Waiting>> {
    view.timeline.seek(Target::End)?;
    let end = view.timeline.position()?;
    let threads = view.threads()?;
    let mut all = Vec::new();
    for waiter in waiters {
        let Some((_, who)) = threads.iter().find(|(_, who)| who.tid == waiter.tid) else {
            continue;
        };
        let (waits_for, address, other) = match waiter.waits {
            Awaited::Lock { addr, owner } => (WaitsFor::Lock, Some(addr), Some(owner)),
            Awaited::End { tid } => (WaitsFor::End, None, Some(tid)),
            Awaited::Wake { addr } => (WaitsFor::Wake, Some(addr), None),
        };
        let at = view.spot(who.number)?;
        let variable = match address {
            Some(address) => view.variable(address)?,
            None => None,
        };
        all.push(Waiting {
            thread: who.clone(),
            waits_for,
            lock: address.map(|address| format!("{address:#x}")),
            variable,
            other,
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

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
