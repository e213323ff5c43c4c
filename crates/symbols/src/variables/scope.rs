//! What is in sight at an address: a module and an address in; its unit, its function, and the blocks around
//! it with their variables, innermost first, out.

use super::{Catalog, Indexed, entry_at};
use crate::types::Entry;
use crate::{Error, modules::Image};
use gimli::{UnitOffset, constants as dw};
use std::ops::Range;
use std::rc::Rc;

/// Which unit's code lies where.
#[derive(Debug)]
pub(super) struct UnitRanges {
    /// Sorted by start.
    ranges: Vec<(Range<u64>, usize)>,
    /// Don't say where their code lies.
    unknown: Vec<usize>,
}

/// The function at an address and all that is around the address within it.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The function's own entry, for its frame base.
    pub function: Entry,
    /// Innermost first; those of inlined functions before those of what they are inlined in.
    pub blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
pub struct Block {
    /// How many inlined functions it is in.
    pub depth: usize,
    pub variables: Vec<Variable>,
}

#[derive(Clone, Debug)]
pub struct Variable {
    pub name: Rc<str>,
    pub entry: Entry,
    pub parameter: bool,
}

impl UnitRanges {
    fn read(indexed: &Indexed) -> Result<UnitRanges, Error> {
        let module = &indexed.module;
        let mut all = UnitRanges {
            ranges: Vec::new(),
            unknown: Vec::new(),
        };
        for number in 0..module.unit_count()? {
            let Ok(unit) = module.skeleton(number) else {
                continue;
            };
            let Ok(mut ranges) = unit.unit_ranges() else {
                continue;
            };
            let before = all.ranges.len();
            while let Ok(Some(range)) = ranges.next() {
                if range.begin < range.end {
                    all.ranges.push((range.begin..range.end, number));
                }
            }
            if all.ranges.len() == before {
                all.unknown.push(number);
            }
        }
        all.ranges.sort_by_key(|(range, _)| range.start);
        Ok(all)
    }
}

impl Catalog {
    /// The unit whose code is at a module's address.
    pub(crate) fn unit_at(&self, image: &Image, address: u64) -> Result<Option<usize>, Error> {
        let indexed = self.indexed(&image.module);
        let ranges = indexed.ranges.get_or_init(|| UnitRanges::read(&indexed));
        let ranges = ranges.as_ref().map_err(Error::clone)?;
        let after = ranges
            .ranges
            .partition_point(|(range, _)| range.start <= address);
        // Ranges seldom overlap; where they do, the one that starts last is the better.
        let near = ranges.ranges[..after].iter().rev().take(16);
        for (range, unit) in near {
            if range.contains(&address) {
                return Ok(Some(*unit));
            }
        }
        for unit in &ranges.unknown {
            let Ok(index) = indexed.unit(*unit) else {
                continue;
            };
            if index
                .functions
                .iter()
                .any(|(range, _)| range.contains(&address))
            {
                return Ok(Some(*unit));
            }
        }
        Ok(None)
    }

    /// What is in sight at a module's address; none outside of functions with debugging information.
    pub fn scope(&self, image: &Image, address: u64) -> Result<Option<Scope>, Error> {
        let Some(number) = self.unit_at(image, address)? else {
            return Ok(None);
        };
        let index = self.unit_index(&image.module, number)?;
        let holds = |(range, _): &&(Range<u64>, UnitOffset)| range.contains(&address);
        let Some((_, offset)) = index.functions.iter().find(holds) else {
            return Ok(None);
        };
        let module = &image.module;
        let unit = module.unit(number)?;
        let mut blocks = Vec::new();
        let mut tree = unit.entries_tree(Some(*offset))?;
        let walk = Walk {
            module,
            unit: number,
            address,
        };
        walk.block(&unit, tree.root()?, 0, &mut blocks)?;
        blocks.reverse();
        Ok(Some(Scope {
            function: entry_at(module, number, *offset),
            blocks,
        }))
    }
}

struct Walk<'a> {
    module: &'a std::sync::Arc<crate::Module>,
    unit: usize,
    address: u64,
}

impl Walk<'_> {
    /// Adds a block's variables, then those of the block within it that holds the address.
    fn block(
        &self,
        unit: &crate::Unit<'_>,
        node: gimli::EntriesTreeNode<'_, '_, '_, crate::Reader>,
        depth: usize,
        blocks: &mut Vec<Block>,
    ) -> Result<(), Error> {
        if blocks.len() > 1000 {
            return Err(Error::Missing("the end of nested blocks".into()));
        }
        let at = blocks.len();
        blocks.push(Block {
            depth,
            variables: Vec::new(),
        });
        let this = entry_at(self.module, self.unit, node.entry().offset());
        let mut children = node.children();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            match entry.tag() {
                tag @ (dw::DW_TAG_variable | dw::DW_TAG_formal_parameter) => {
                    let entry = entry_at(self.module, self.unit, entry.offset());
                    if let Some(name) = entry.name()? {
                        blocks[at].variables.push(Variable {
                            name,
                            entry,
                            parameter: tag == dw::DW_TAG_formal_parameter,
                        });
                    }
                }
                tag @ (dw::DW_TAG_lexical_block
                | dw::DW_TAG_inlined_subroutine
                | dw::DW_TAG_try_block
                | dw::DW_TAG_catch_block) => {
                    let mut ranges = unit.die_ranges(entry)?;
                    let mut inside = false;
                    while let Some(range) = ranges.next()? {
                        inside |= (range.begin..range.end).contains(&self.address);
                    }
                    if inside {
                        let inlined = tag == dw::DW_TAG_inlined_subroutine;
                        self.block(unit, child, depth + usize::from(inlined), blocks)?;
                    }
                }
                _ => {}
            }
        }
        self.left_out(&this, &mut blocks[at].variables)
    }

    /// An instance of an inlined function may leave out what has no place of its own in it: static
    /// variables, and those that were optimised away. They still hide others of their names.
    fn left_out(&self, block: &Entry, variables: &mut Vec<Variable>) -> Result<(), Error> {
        let Some(origin) = block.referred(dw::DW_AT_abstract_origin)? else {
            return Ok(());
        };
        let mut known = Vec::new();
        for variable in variables.iter() {
            known.push(variable.entry.origin()?);
        }
        for child in origin.children()? {
            let tag = child.tag()?;
            if !matches!(tag, dw::DW_TAG_variable | dw::DW_TAG_formal_parameter)
                || known.contains(&child.origin()?)
            {
                continue;
            }
            if let Some(name) = child.name()? {
                variables.push(Variable {
                    name,
                    entry: child,
                    parameter: tag == dw::DW_TAG_formal_parameter,
                });
            }
        }
        Ok(())
    }
}

impl Scope {
    /// How many inlined functions the address is in.
    pub fn depth(&self) -> usize {
        self.blocks.first().map_or(0, |block| block.depth)
    }
}
