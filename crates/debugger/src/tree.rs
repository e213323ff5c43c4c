//! What a call called. In: a frame. Out: the calls that were made within it, as a tree in the order of time, each with its arguments and
//! result.

use clew_recording::event::ThreadId;
use clew_symbols::types::Entry;
use clew_symbols::variables::Kind;
use clew_timeline::{CallSeen, FunctionEntry, Mark, Position, Target};
use serde::Serialize;

use crate::breakpoints::in_process;
use crate::calls::{Wanted, return_of, told};
use crate::debugger::Debugger;
use crate::going::MOST_STOPPERS;
use crate::{Call, Direction, Result, Step, StopReason};

/// Libraries below these folders are the system's: nobody asked what happens in them.
const SYSTEM: [&str; 3] = ["/usr/lib", "/lib", "/lib64"];

/// What a call called, directly and indirectly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// The function of the frame.
    pub function: Option<String>,
    /// Where the call began and ended.
    pub from: String,
    pub to: String,
    /// In order; [`Call::depth`] is 0 for those that the frame's function calls itself.
    pub calls: Vec<Call>,
    /// There are no more.
    pub complete: bool,
}

/// A call that is asked about: its thread, its function's first instruction, its canonical frame address.
#[derive(Clone, Copy)]
struct Own {
    thread: ThreadId,
    entry: u64,
    frame: u64,
}

impl Debugger {
    /// Calls within the call that a frame of a thread is in, at most so many: of functions of the program and its own
    /// libraries, with code of their own. None if it isn't known where the call began. It stays where it is.
    pub fn call_tree(&mut self, thread: ThreadId, frame: usize, most: u64) -> Result<Option<Tree>> {
        let (here, chosen, hidden) = (self.timeline.position()?, self.thread, self.hidden);
        let stack = self.stack(thread)?;
        // A call that was inlined is a part of another's.
        let own = stack.frames.iter().enumerate().skip(frame);
        let own = own.clone().find(|(_, one)| !one.inlined).or(own.last());
        let Some((frame, function)) = own else {
            return Err(crate::Error::Frame(frame));
        };
        let function = function.location.function.clone();
        let found = self.within(thread, frame);
        let calls = match found {
            Ok(Some((from, to, own))) => {
                self.calls_between(own, from, to, most)
                    .map(|(calls, complete)| {
                        Some(Tree {
                            function,
                            from: from.to_string(),
                            to: to.to_string(),
                            calls,
                            complete,
                        })
                    })
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        self.timeline.seek(Target::Position(here))?;
        self.moved();
        (self.thread, self.hidden) = (chosen, hidden);
        calls
    }

    /// Where the call of a frame began, where it is over, and which it is.
    fn within(
        &mut self,
        thread: ThreadId,
        frame: usize,
    ) -> Result<Option<(Position, Position, Own)>> {
        let Some(standing) = self.standing(thread, frame)? else {
            return Ok(None);
        };
        let own = Own {
            thread,
            entry: standing.body.entry,
            frame: standing.cfa,
        };
        let Some(from) = self.began(thread, frame)? else {
            return Ok(None);
        };
        self.choose_thread(thread)?;
        let to = match self.step(Step::Out, Direction::Forward, frame) {
            Ok(stop) if matches!(stop.reason, StopReason::Step | StopReason::Arrived) => {
                self.timeline.position()?
            }
            Err(error) if error.is_interrupted() => return Err(error),
            // It never returns.
            _ => self.timeline.end()?,
        };
        Ok(Some((from, to, own)))
    }

    fn calls_between(
        &mut self,
        own: Own,
        from: Position,
        to: Position,
        most: u64,
    ) -> Result<(Vec<Call>, bool)> {
        let images = self.images()?;
        let modules = &images.modules;
        let mut wanted: Vec<Wanted> = Vec::new();
        for image in modules.modules() {
            if SYSTEM
                .iter()
                .any(|folder| image.module.name().starts_with(folder))
            {
                continue;
            }
            let names = self
                .program
                .catalog()
                .names_of(&image.module, Kind::Function);
            let mut names = names.unwrap_or_default();
            names.sort_unstable();
            names.dedup();
            for name in names {
                for function in image.module.functions_named(&name).unwrap_or_default() {
                    let Some(pc) = in_process(modules, image, function.entry) else {
                        continue;
                    };
                    if wanted.iter().any(|other| other.seen.pc == pc) {
                        continue;
                    }
                    let entry = function.die.map(|die| Entry::new(&image.module, die));
                    let seen = self.seen_at(modules, image, &function, entry.as_ref(), pc)?;
                    wanted.push(Wanted {
                        name: function.name,
                        entry,
                        seen,
                    });
                }
            }
        }
        wanted.truncate(MOST_STOPPERS);
        if wanted.is_empty() {
            return Ok((Vec::new(), true));
        }
        let entries: Vec<FunctionEntry> = wanted.iter().map(|one| one.seen).collect();
        let seen = self
            .timeline
            .calls(&entries, from, Some(to), most.saturating_add(1))?;
        let complete = seen.complete && !seen.interrupted;
        let mut calls = seen.all;
        calls.retain(|call| call.thread == own.thread);
        // The first is the call itself, which isn't within itself.
        let itself = |call: &CallSeen| {
            let of = wanted.get(call.function as usize);
            call.frame == own.frame && of.is_some_and(|of| of.seen.pc == own.entry)
        };
        if calls.first().is_some_and(itself) {
            calls.remove(0);
        }
        let marks: Vec<Mark> = calls.iter().map(|call| call.at).collect();
        let positions = self.timeline.positions(&marks)?;
        let mut returns: Vec<Mark> = calls.iter().filter_map(return_of).collect();
        returns.sort_by_key(|mark| (mark.event, mark.ticks));
        let known = self.timeline.positions(&returns)?;
        let key = |mark: &Mark| (mark.event, mark.ticks, mark.pc, mark.sp);
        let known: std::collections::HashMap<_, Position> =
            returns.iter().map(key).zip(known).collect();
        let mut all = Vec::new();
        for (call, position) in calls.iter().zip(positions) {
            let Some(wanted) = wanted.get(call.function as usize) else {
                continue;
            };
            let back = return_of(call).and_then(|mark| known.get(&key(&mark)).copied());
            let catalog = self.program.catalog();
            all.push(told(
                catalog,
                modules,
                wanted,
                call,
                position.to_string(),
                back,
            ));
        }
        let least = all.iter().map(|call| call.depth).min().unwrap_or(0);
        for call in &mut all {
            call.depth -= least;
        }
        Ok((all, complete))
    }
}
