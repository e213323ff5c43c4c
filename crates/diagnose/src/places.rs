//! Where blocks were allocated and freed. In: the heap's history. Out: the story of an address with stacks; blocks
//! grouped by the place that allocated them.

use std::collections::BTreeMap;

use clew_recording::event::ThreadId;
use clew_timeline::{Mark, Position};
use serde::Serialize;

use crate::Result;
use crate::heap::{Block, History, Moment, Wrong};
use crate::scene::{Scene, Site, plain_name};

/// Frames of a stack that are told.
const MOST_FRAMES: usize = 8;

/// A call of an allocator, with its stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    pub position: String,
    pub thread: ThreadId,
    /// The allocator's function.
    pub function: String,
    pub site: Site,
    /// `main at a.c:12`, innermost first, without the allocator's own.
    pub stack: Vec<String>,
}

/// The life of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Life {
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    pub size: u64,
    pub allocated: Told,
    pub freed: Option<Told>,
    /// `realloc` made another block of it.
    pub moved: bool,
}

/// A free that wasn't right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToldWrong {
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    pub what: &'static str,
    pub free: Told,
    /// The block that it is about.
    pub block: Option<Life>,
}

/// Blocks of one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    pub blocks: u64,
    pub bytes: u64,
    /// The first of them.
    pub first: Life,
}

/// The whole in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    pub allocations: u64,
    pub bytes: u64,
    pub frees: u64,
    pub live: u64,
    pub live_bytes: u64,
    pub peak_bytes: u64,
    pub wrong: u64,
    /// All calls of allocators were seen.
    pub complete: bool,
}

fn hexadecimal<S: serde::Serializer>(
    address: &u64,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{address:#x}"))
}

impl History {
    pub fn figures(&self) -> Figures {
        let mut changes: Vec<((u64, u64), i64)> = Vec::new();
        let tick = |mark: Mark| (mark.event, mark.ticks);
        for block in &self.blocks {
            let made = block.allocated.back.unwrap_or(block.allocated.call);
            changes.push((tick(made), block.size as i64));
            if let Some(freed) = block.freed {
                changes.push((tick(freed.call), -(block.size as i64)));
            }
        }
        changes.sort_by_key(|(tick, _)| *tick);
        let (mut now, mut peak) = (0i64, 0);
        for (_, change) in changes {
            now = now.saturating_add(change);
            peak = peak.max(now);
        }
        let count = self.blocks.len() as u64;
        let live = self.live().count() as u64;
        Figures {
            allocations: count,
            bytes: self.blocks.iter().map(|block| block.size).sum(),
            frees: count - live,
            live,
            live_bytes: self.live().map(|(_, block)| block.size).sum(),
            peak_bytes: peak.max(0) as u64,
            wrong: self.wrong.len() as u64,
            complete: self.complete,
        }
    }
}

impl Scene<'_> {
    /// A call of an allocator, told; it goes there.
    pub fn told(&mut self, moment: &Moment) -> Result<Told> {
        let position = self.position(moment.call)?;
        self.told_at(moment, position)
    }

    fn told_at(&mut self, moment: &Moment, position: Position) -> Result<Told> {
        self.go(position)?;
        let stack = self.stack(moment.thread)?;
        let site = self.site_in(&stack, moment.thread, position);
        let frames = stack.frames.iter().skip(1).take(MOST_FRAMES);
        let lines = frames.map(|frame| {
            let name = frame.function.as_deref().unwrap_or("??");
            let name = plain_name(name);
            match &frame.line {
                Some(line) if line.line != 0 => {
                    let file = line.file.rsplit('/').next().unwrap_or(&line.file);
                    format!("{name} at {file}:{}", line.line)
                }
                _ => name.to_string(),
            }
        });
        Ok(Told {
            position: position.to_string(),
            thread: moment.thread,
            function: usual(moment.function),
            site,
            stack: lines.collect(),
        })
    }

    /// The life of a block.
    pub fn life(&mut self, block: &Block) -> Result<Life> {
        let history = self.history()?;
        Ok(Life {
            address: block.address,
            size: block.size,
            allocated: self.told(&block.allocated)?,
            freed: match &block.freed {
                Some(moment) => Some(self.told(moment)?),
                None => None,
            },
            moved: history.blocks.iter().any(|other| {
                let from = other.from.and_then(|from| history.blocks.get(from));
                from.is_some_and(|from| from == block)
            }),
        })
    }

    /// Everything that lived at an address.
    pub fn lives(&mut self, address: u64, most: usize) -> Result<Vec<Life>> {
        let history = self.history()?;
        let blocks: Vec<Block> = history.at(address).map(|(_, block)| *block).collect();
        blocks
            .iter()
            .take(most)
            .map(|block| self.life(block))
            .collect()
    }

    /// Frees that weren't right.
    pub fn wrong_frees(&mut self, most: usize) -> Result<Vec<ToldWrong>> {
        let history = self.history()?;
        let mut all = Vec::new();
        for one in history.wrong.iter().take(most) {
            let (what, block) = match one.why {
                Wrong::Twice(n) => ("freed again", Some(n)),
                Wrong::NoBlock(n) => ("no block begins there", n),
                Wrong::Mismatch(n) => ("freed in another way than it was allocated", Some(n)),
            };
            let block = match block.and_then(|n| history.blocks.get(n)) {
                Some(block) => Some(self.life(block)?),
                None => None,
            };
            all.push(ToldWrong {
                address: one.address,
                what,
                free: self.told(&one.moment)?,
                block,
            });
        }
        Ok(all)
    }

    /// Blocks by who allocated them, those with most bytes first, at most so many groups.
    pub fn groups(&mut self, blocks: &[Block], most: usize) -> Result<(Vec<Group>, usize)> {
        let mut by_place: BTreeMap<u64, Vec<Block>> = BTreeMap::new();
        for block in blocks {
            let back = block.allocated.back.map_or(0, |back| back.pc);
            by_place.entry(back).or_default().push(*block);
        }
        let bytes = |all: &[Block]| all.iter().map(|block| block.size).sum::<u64>();
        let mut groups: Vec<Vec<Block>> = by_place.into_values().collect();
        groups.sort_by_key(|all| std::cmp::Reverse(bytes(all)));
        let count = groups.len();
        let mut told = Vec::new();
        for all in groups.into_iter().take(most) {
            told.push(Group {
                blocks: all.len() as u64,
                bytes: bytes(&all),
                first: self.life(&all[0])?,
            });
        }
        Ok((told, count))
    }
}

/// The name that people use.
fn usual(function: &str) -> String {
    let plain = clew_symbols::value::demangled(function);
    plain_name(&plain).to_string()
}
