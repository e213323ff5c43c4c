//! What a line calls. In: a frame. Out: the functions that its line calls by name, and a step into one of them rather than the first.

use clew_recording::event::ThreadId;
use clew_timeline::Direction;
use serde::Serialize;

use crate::condition::Condition;
use crate::debugger::Debugger;
use crate::going::{Came, MOST_STOPPERS, Stop, Stopper};
use crate::statements::{Statement, line_of};
use crate::{Error, Result};

/// A function that a line calls, to step into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepTarget {
    pub function: String,
    /// Where its body begins.
    #[serde(serialize_with = "crate::debugger::hexadecimal")]
    pub address: u64,
}

impl Debugger {
    /// Functions with lines that the line of a frame calls by name, in the order of its code.
    pub fn step_targets(&mut self, thread: ThreadId, frame: usize) -> Result<Vec<StepTarget>> {
        let Some(standing) = self.standing(thread, frame)? else {
            return Ok(Vec::new());
        };
        let callees = self.callees(&standing)?;
        let images = self.images()?;
        let mut all: Vec<StepTarget> = Vec::new();
        for (call, bodies) in &callees.named {
            let Some(image) = images.modules.find(*call) else {
                continue;
            };
            let places = image.module.places_at(image.local(*call))?;
            let place = Statement {
                address: *call,
                chain: places.iter().rev().filter_map(|place| place.die).collect(),
                lines: places
                    .iter()
                    .rev()
                    .map(|place| place.line.as_ref().and_then(line_of))
                    .collect(),
                begins: 0,
            };
            if !place.is_at(standing.line.as_ref(), &standing.chain) {
                continue;
            }
            for &address in bodies {
                let image = images.modules.find(address);
                // The function itself, not what was inlined where it begins.
                let places = image.map(|image| image.module.places_at(image.local(address)));
                let outer = places.and_then(|places| places.ok()?.into_iter().last());
                let name = outer.and_then(|place| place.function);
                let target = StepTarget {
                    function: name.unwrap_or_else(|| format!("{address:#x}")),
                    address,
                };
                if !all.contains(&target) {
                    all.push(target);
                }
            }
        }
        Ok(all)
    }

    /// Steps on, into the function whose body begins at an address if this frame's line calls it, else over the line.
    pub fn step_into(&mut self, address: u64, frame: usize) -> Result<Stop> {
        let thread = self.thread;
        let Some(standing) = self.standing(thread, frame)? else {
            return Err(Error::Place("there are no lines here to step in".into()));
        };
        let elsewhere =
            |statement: &&Statement| !statement.is_at(standing.line.as_ref(), &standing.chain);
        let statements = standing.statements(false).filter(elsewhere);
        let mut stoppers = vec![Stopper {
            address,
            condition: Condition::Below(standing.cfa),
        }];
        stoppers.extend(statements.map(|statement| standing.stopper(statement.address)));
        stoppers.extend(standing.leaving(MOST_STOPPERS.saturating_sub(stoppers.len())));
        self.fits(&standing, &stoppers)?;
        let came = self.search(Direction::Forward, thread, &stoppers, true, None)?;
        if matches!(came, Came::Stopper(n) if n > 0) {
            self.hide(thread, false, None)?;
        }
        self.stop(came.reason())
    }
}
