//! Watchpoints: memory to stop at, beside breakpoints. In: addresses. Out: stops that say what was there before and is now.

use clew_timeline::{Watch, WatchKind};
use serde::Serialize;

use crate::debugger::{Debugger, hexadecimal};
use crate::{Error, Result};

pub type WatchpointId = u32;

/// What kind of touch counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Touch {
    /// The contents change; writing the same again doesn't count.
    Change,
    Read,
    /// Read or written.
    Access,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Watchpoint {
    pub id: WatchpointId,
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    pub size: u64,
    pub touch: Touch,
    pub hits: u64,
}

/// More memory isn't watched by one of them.
const MOST: u64 = 1 << 20;

#[derive(Default)]
pub(crate) struct Watchpoints {
    pub all: Vec<Watchpoint>,
    last: WatchpointId,
}

impl Debugger {
    pub fn watchpoints(&self) -> &[Watchpoint] {
        &self.watchpoints.all
    }

    /// Watches memory from now on, whatever lives there.
    pub fn add_watchpoint(&mut self, address: u64, size: u64, touch: Touch) -> Result<Watchpoint> {
        if size == 0 || size > MOST || address.checked_add(size).is_none() {
            return Err(Error::Place(format!(
                "{size} bytes at {address:#x} can't be watched; watch 1 to {MOST} bytes"
            )));
        }
        self.watchpoints.last += 1;
        let made = Watchpoint {
            id: self.watchpoints.last,
            address,
            size,
            touch,
            hits: 0,
        };
        self.watchpoints.all.push(made.clone());
        Ok(made)
    }

    pub fn clear_watchpoints(&mut self) {
        self.watchpoints.all.clear();
    }

    /// For the timeline; in the order of [`Debugger::watchpoints`].
    pub(crate) fn watches(&self) -> Vec<Watch> {
        let all = self.watchpoints.all.iter();
        all.map(|one| Watch {
            addr: one.address,
            len: one.size,
            kind: match one.touch {
                Touch::Change => WatchKind::Change,
                Touch::Read => WatchKind::Read,
                Touch::Access => WatchKind::Access,
            },
        })
        .collect()
    }
}
