//! Which lines were executed, and how often. In: nothing, then a file. Out: a count for each line that has code, exact for
//! the whole life of the program.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use clew_engine::trace::read::{Backwards, Entry};
use clew_timeline::Target;
use serde::Serialize;

use crate::breakpoints::in_process;
use crate::debugger::Debugger;
use crate::{Error, Result};

/// So much work is traced at once: all of it is in memory for a while.
const STRETCH: u64 = 2_000_000;

/// How often each instruction was executed.
pub(crate) type Counts = HashMap<u64, u64>;

/// A line that has code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LineCount {
    pub line: u32,
    /// How often its first statement was come to, in all functions that have a copy of it.
    pub count: u64,
}

impl Debugger {
    /// Lines of a file that have code, with how often each was executed. The first question takes a replay of the whole life,
    /// traced; the others are answered from what it found. It stays where it is.
    pub fn coverage(&mut self, file: &str) -> Result<Vec<LineCount>> {
        let counts = self.counts()?;
        let images = self.images()?;
        let mut lines: BTreeMap<u32, u64> = BTreeMap::new();
        for image in images.modules.modules() {
            for found in image.module.lines_of(file).unwrap_or_default() {
                let Some(pc) = in_process(&images.modules, image, found.address) else {
                    continue;
                };
                *lines.entry(found.line.line).or_default() += counts.get(&pc).copied().unwrap_or(0);
            }
        }
        let lines = lines.into_iter();
        Ok(lines
            .map(|(line, count)| LineCount { line, count })
            .collect())
    }

    /// Files that the programs and libraries of its life were compiled from.
    pub fn sources(&mut self) -> Result<Vec<Arc<str>>> {
        let images = self.images()?;
        let modules = images.modules.modules();
        let mut all: Vec<Arc<str>> = modules
            .flat_map(|image| image.module.sources().unwrap_or_default())
            .collect();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn counts(&mut self) -> Result<Arc<Counts>> {
        if let Some(known) = &self.counts {
            return Ok(known.clone());
        }
        let here = self.timeline.position()?;
        self.timeline.seek(Target::Start)?;
        let counted = self.count();
        self.timeline.seek(Target::Position(here))?;
        let counted = Arc::new(counted?);
        self.counts = Some(counted.clone());
        Ok(counted)
    }

    fn count(&mut self) -> Result<Counts> {
        let mut counts = Counts::new();
        let mut from = self.timeline.at();
        while let Some(trace) = self.timeline.trace_forth(&from, STRETCH)? {
            // Most runs go through a block as others do.
            let mut runs: HashMap<(u32, u16), u64> = HashMap::new();
            for segment in &trace.segments {
                for entry in Backwards::new(&trace.tables, segment) {
                    match entry.map_err(|_| Error::Timeline(clew_timeline::Error::Lost))? {
                        Entry::Run { end, .. } => {
                            *runs.entry((end.block, end.count)).or_default() += 1
                        }
                        Entry::Step { pc, .. } => *counts.entry(pc).or_default() += 1,
                        _ => {}
                    }
                }
            }
            for ((block, count), times) in runs {
                let Some(block) = trace.tables.blocks.get(block as usize) else {
                    continue;
                };
                for traced in block.instructions.iter().take(count.into()) {
                    *counts.entry(traced.ins.ip()).or_default() += times;
                }
            }
            if !trace.complete {
                break;
            }
            from = trace.stopped;
        }
        Ok(counts)
    }
}
