//! Reads traces: entries from the last to the first, and what each tells.
//!
//! In: rows and segments as a worker wrote them. Out: runs through blocks, events, steps. A worker may be a
//! stranger's to the last instruction: what doesn't fit together ends the reading, and nothing else.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::Special;
use super::plan::{DOWNWARDS, Operand, Plan, is_odd, word};
use super::rows::{End, Row};
use crate::cache::accesses::Access;
use crate::translate::touches::{Finder, Segment};

/// An instruction of a block.
#[derive(Clone, Debug)]
pub struct Traced {
    pub ins: Instruction,
    /// Its accesses to memory.
    pub operands: Range<u32>,
    /// Only an entry before tells what it touches.
    pub odd: bool,
}

/// What is known of a block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub instructions: Vec<Traced>,
    pub operands: Vec<Operand>,
    pub code: Vec<u8>,
    /// Which of its instructions are returns: behind those that are followed, a tick is over.
    pub returns: Vec<u16>,
}

/// All blocks and ends of a worker.
#[derive(Default)]
pub struct Tables {
    pub blocks: Vec<Block>,
    pub ends: Vec<End>,
    read: usize,
    finder: Finder,
}

impl Tables {
    /// Bytes of rows that were read so far.
    pub fn read(&self) -> usize {
        self.read
    }

    /// More rows; whether they make sense.
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        let Some(rows) = Row::decode_all(bytes) else {
            return false;
        };
        self.read += bytes.len();
        for row in rows {
            match row {
                Row::Block { pieces } => {
                    let block = block(&mut self.finder, pieces);
                    self.blocks.push(block);
                }
                Row::End(end) => self.ends.push(end),
            }
        }
        true
    }
}

fn block(finder: &mut Finder, pieces: Vec<(u64, Vec<u8>)>) -> Block {
    let mut block = Block::default();
    let mut plan = Plan::default();
    for (pc, bytes) in pieces {
        let mut decoder = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE);
        while decoder.can_decode() {
            let ins = decoder.decode();
            let first = block.operands.len() as u32;
            finder.look(&ins);
            let touches = finder.all();
            plan.before(touches, |operand| block.operands.push(operand));
            plan.after(&ins, touches, finder.written());
            if ins.flow_control() == FlowControl::Return {
                block.returns.push(block.instructions.len() as u16);
            }
            block.instructions.push(Traced {
                ins,
                operands: first..block.operands.len() as u32,
                odd: is_odd(&ins, touches),
            });
        }
        block.code.extend(bytes);
    }
    block
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// A block was run through up to this end.
    Run {
        end: End,
        slots: &'a [u8],
    },
    Event {
        number: u64,
        pc: u64,
    },
    Thread {
        thread: u64,
        bases: Bases,
    },
    Touched(&'a [u8]),
    /// `whole`: the instruction is through; else it has done a part of it, and faulted.
    Step {
        pc: u64,
        code: [u8; 16],
        touched: &'a [u8],
        whole: bool,
        ticked: bool,
    },
}

/// What segment registers add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bases {
    pub fs: u64,
    pub gs: u64,
}

/// The entries of a segment, from the last to the first. Ends with an error where they make no sense.
pub struct Backwards<'a> {
    tables: &'a Tables,
    rest: &'a [u8],
}

/// What was read isn't a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense;

impl<'a> Backwards<'a> {
    pub fn new(tables: &'a Tables, segment: &'a [u8]) -> Backwards<'a> {
        Backwards {
            tables,
            rest: segment,
        }
    }

    fn entry(&mut self) -> Option<Entry<'a>> {
        let (rest, last) = self.rest.split_last_chunk::<8>()?;
        let last = u64::from_le_bytes(*last);
        let id = last as u32;
        let end = self.tables.ends.get(id as usize);
        let len = end.map_or(last >> 32, |end| u64::from(end.size));
        let at = rest.len().checked_sub(usize::try_from(len).ok()?)?;
        let (before, payload) = rest.split_at(at);
        self.rest = before;
        if let Some(&end) = end {
            return Some(Entry::Run {
                end,
                slots: payload,
            });
        }
        let word = |n: usize| word(payload, 8 * n as u16);
        Some(match Special::of(id)? {
            Special::Event => Entry::Event {
                number: word(0)?,
                pc: word(1)?,
            },
            Special::Thread => Entry::Thread {
                thread: word(0)?,
                bases: Bases {
                    fs: word(1)?,
                    gs: word(2)?,
                },
            },
            Special::Touched => Entry::Touched(payload),
            special @ (Special::Step | Special::Part) => Entry::Step {
                whole: special == Special::Step,
                ticked: *payload.get(23)? != 0,
                pc: word(0)?,
                code: payload.get(8..24)?.try_into().ok()?,
                touched: payload.get(24..)?,
            },
        })
    }
}

impl<'a> Iterator for Backwards<'a> {
    type Item = Result<Entry<'a>, Nonsense>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_none() {
            self.rest = &[];
        }
        Some(entry.ok_or(Nonsense))
    }
}

/// Accesses as the engine tells them.
pub fn touched(bytes: &[u8]) -> impl Iterator<Item = Access> {
    bytes.as_chunks::<24>().0.iter().map(|words| {
        let word = |n: u16| word(words, 8 * n).expect("three words");
        Access {
            addr: word(0),
            len: word(1),
            read: word(2) & 1 != 0,
            write: word(2) & 2 != 0,
        }
    })
}

/// The words that say so.
pub fn words_of(accesses: &[Access]) -> Vec<u64> {
    let words = |access: &Access| {
        let kind = u64::from(access.read) | u64::from(access.write) << 1;
        [access.addr, access.len, kind]
    };
    accesses.iter().flat_map(words).collect()
}

impl Block {
    /// The accesses of one instruction, in terms of the entry's slots. None if the entry hasn't got them.
    pub fn accesses<'a>(
        &'a self,
        traced: &'a Traced,
        slots: &'a [u8],
        bases: Bases,
    ) -> impl Iterator<Item = Option<Access>> + 'a {
        let range = traced.operands.start as usize..traced.operands.end as usize;
        let operands = self.operands.get(range).unwrap_or_default();
        operands
            .iter()
            .map(move |operand| operand.access(slots, bases))
    }
}

impl Operand {
    /// What it touches; of nothing, for a string instruction that doesn't repeat at all, no bytes.
    pub fn access(&self, slots: &[u8], bases: Bases) -> Option<Access> {
        let touch = &self.touch;
        let value = |register: Option<u8>, known: Option<super::plan::Known>| match register {
            None => Some(0),
            Some(_) => known?.value(slots),
        };
        let segment = match touch.segment {
            Segment::None => 0,
            Segment::Fs => bases.fs,
            Segment::Gs => bases.gs,
        };
        let index = value(touch.index, self.index)?.wrapping_mul(u64::from(touch.scale));
        let mut addr = value(touch.base, self.base)?
            .wrapping_add(index)
            .wrapping_add(touch.displacement)
            .wrapping_add(segment);
        let mut len = u64::from(touch.len);
        if let Some(repeats) = self.repeats {
            let before = repeats.before.value(slots)?;
            let count = before.wrapping_sub(word(slots, repeats.after)?);
            let element = len;
            len = count.saturating_mul(element);
            if word(slots, repeats.direction)? == DOWNWARDS && count > 0 {
                addr = addr.wrapping_sub(len).wrapping_add(element);
            }
        }
        Some(Access {
            addr,
            len,
            read: touch.read,
            write: touch.write,
        })
    }
}
