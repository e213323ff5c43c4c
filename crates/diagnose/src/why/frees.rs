//! An allocator that gave up, or crashed. In: the thread that is in it. Out: whether the block was freed before, isn't one, or
//! who has written over what the allocator keeps beside its blocks.

use clew_recording::event::ThreadId;
use clew_slice::origin::Value;
use clew_symbols::Stack;

use super::memory::allocator;
use super::tell::quoted;
use super::trail::{Choice, register_value};
use super::{Asking, Kind};
use crate::Result;
use crate::heap::{Block, Moment, Wrong, WrongFree};
use crate::scene::Site;

/// Blocks whose neighbourhood is looked at.
const MOST_BLOCKS: usize = 2_000;
/// glibc: flags in the word with a chunk's size, and its alignment.
const FLAGS: u64 = 7;
const ALIGNED: u64 = 16;
const LEAST: u64 = 32;

impl Asking<'_> {
    /// If an allocator's function is at work here, explains that; whether it could.
    pub fn in_allocator(&mut self, stack: &Stack, thread: ThreadId) -> Result<bool> {
        if !allocator(stack) {
            return Ok(false);
        }
        let position = self.scene.here()?;
        let site = self.scene.site_in(stack, thread, position);
        let history = self.scene.history()?;
        let unfinished = history.unfinished.iter();
        let mut last = unfinished.filter(|(_, moment)| moment.thread == thread);
        let Some(&(address, moment)) = last.next_back() else {
            return Ok(false);
        };
        let wrong = history.wrong.iter().rev();
        let mut wrong = wrong.filter(|one| one.moment.call == moment.call);
        if let Some(wrong) = wrong.next().copied() {
            self.wrong_free(&wrong)?;
            return Ok(true);
        }
        self.corrupted(address, &site, &moment)
    }

    /// A free that wasn't right.
    pub fn wrong_free(&mut self, wrong: &WrongFree) -> Result<()> {
        let history = self.scene.history()?;
        let told = self.scene.told(&wrong.moment)?;
        let address = wrong.address;
        match wrong.why {
            Wrong::Twice(n) => {
                self.answer.kind = Kind::DoubleFree;
                let block = history.blocks[n];
                self.say(
                    format!(
                        "{} of {address:#x}, which was freed before{}.",
                        told.function,
                        quoted(&told.site)
                    ),
                    Some(told.site),
                );
                if let Some(freed) = block.freed {
                    let first = self.scene.told(&freed)?;
                    let text = format!("It had been freed{}", quoted(&first.site));
                    let by = first.stack.get(1).cloned();
                    let by = by.map_or(String::new(), |by| format!(" (called from {by})"));
                    self.add(format!("{text}{by}."), Some(first.site), false, true);
                }
                let made = self.scene.told(&block.allocated)?;
                self.say(
                    format!(
                        "It was allocated, {} bytes{}.",
                        block.size,
                        quoted(&made.site)
                    ),
                    Some(made.site),
                );
            }
            Wrong::NoBlock(inside) => {
                self.answer.kind = Kind::InvalidFree;
                let position = self.scene.position(wrong.moment.call)?;
                self.scene.go(position)?;
                let what = match inside {
                    Some(n) => {
                        let block = history.blocks[n];
                        let offset = address - block.address;
                        format!("{offset} bytes into a block of {}", block.size)
                    }
                    None => self.region(address)?,
                };
                self.say(
                    format!(
                        "{} of {address:#x}, which is {what}{}.",
                        told.function,
                        quoted(&told.site)
                    ),
                    Some(told.site.clone()),
                );
                self.scene.go(position)?;
                let value = register_value(wrong.moment.thread, iced_x86::Register::RDI);
                let trail = self.trail(&value, Choice::Stop)?;
                self.tell_last_change(&trail, &told.site, "That address")?;
                if let Some(n) = inside {
                    let block = history.blocks[n];
                    let made = self.scene.told(&block.allocated)?;
                    self.say(
                        format!("The block was allocated{}.", quoted(&made.site)),
                        Some(made.site),
                    );
                }
            }
            Wrong::Mismatch(n) => {
                self.answer.kind = Kind::InvalidFree;
                let block = history.blocks[n];
                let made = self.scene.told(&block.allocated)?;
                let text = format!(
                    "{} of a block that {} had given{}.",
                    told.function,
                    made.function,
                    quoted(&told.site)
                );
                self.add(text, Some(told.site), false, true);
                self.say(
                    format!("It was allocated{}.", quoted(&made.site)),
                    Some(made.site),
                );
            }
        }
        Ok(())
    }

    /// What an address belongs to.
    fn region(&mut self, address: u64) -> Result<String> {
        let mappings = self.scene.mappings()?;
        let found = super::fault::mapping(&mappings, address);
        Ok(match found {
            Some(mapping) if mapping.name.contains("stack") => "on the stack".into(),
            Some(_) => match self.scene.variable(address)? {
                Some(name) => format!("the variable `{name}`"),
                None => "no block of the heap".into(),
            },
            None => "where nothing is mapped".into(),
        })
    }

    /// The allocator found its own words changed: by whom? Knows how glibc keeps them.
    fn corrupted(&mut self, address: u64, site: &Site, moment: &Moment) -> Result<bool> {
        let position = self.scene.here()?;
        let live = self.scene.live_at(position)?;
        let mut suspects: Vec<(u64, Block)> = Vec::new();
        let near = |block: &Block| block.address.abs_diff(address);
        let mut blocks: Vec<Block> = live.into_iter().map(|one| one.1).collect();
        // The one that is being freed counts as freed already.
        let history = self.scene.history()?;
        let freeing = history.blocks.iter();
        let freeing = freeing.filter(|block| block.freed.is_some_and(|by| by.call == moment.call));
        blocks.extend(freeing);
        blocks.sort_by_key(near);
        self.scene.go(position)?;
        for block in blocks.iter().take(MOST_BLOCKS) {
            let header = block.address.wrapping_sub(8);
            let Some(word) = self.scene.number(header, 8)? else {
                continue;
            };
            let least = (block.size + 8).next_multiple_of(ALIGNED).max(LEAST);
            let size = word & !FLAGS;
            // glibc gives a little more at times, never less; large blocks are whole pages.
            let fine = size >= least && size <= least + 32 || block.size > 100_000;
            if !fine {
                suspects.push((header, *block));
                continue;
            }
            // What is behind it begins where it ends, and has a size, too.
            let next = block
                .address
                .wrapping_sub(16)
                .wrapping_add(size)
                .wrapping_add(8);
            if let Some(word) = self.scene.number(next, 8)?
                && block.size <= 100_000
                && ((word & !FLAGS) < ALIGNED || word >> 40 != 0)
            {
                suspects.push((next, *block));
            }
        }
        for (word, _) in suspects {
            self.scene.go(position)?;
            let chain = self.scene.origin(&Value::Memory { addr: word, len: 8 })?;
            let Some(step) = chain.steps.first().cloned() else {
                continue;
            };
            self.scene.go(step.position)?;
            let stack = self.scene.stack(step.thread)?;
            if allocator(&stack) {
                continue;
            }
            self.answer.kind = Kind::HeapOverflow;
            self.say(
                format!(
                    "{} found the heap damaged{}.",
                    moment.function,
                    quoted(site)
                ),
                Some(site.clone()),
            );
            let what = "A word that the allocator keeps between blocks";
            match self.pointed_by(&step)? {
                Some(of) => self.overrun(None, &of, &step, word, what)?,
                None => {
                    let at = self.site_of(&step)?;
                    let text = format!("{what} was written over{}.", quoted(&at));
                    self.add(text, Some(at), false, true);
                }
            }
            return Ok(true);
        }
        self.looked("the words that glibc keeps beside the blocks that are alive: none is wrong");
        Ok(false)
    }
}
