//! What is in sight at an address: a module and an address in; its unit, its function, and the blocks around
//! it with their variables, innermost first, out.

use super::{Catalog, entry_at};
use crate::types::Entry;
use crate::{Error, modules::Image};
use gimli::constants as dw;
use std::sync::Arc;

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
    pub name: Arc<str>,
    pub entry: Entry,
    pub parameter: bool,
}

impl Catalog {
    /// What is in sight at a module's address; none outside of functions with debugging information.
    pub fn scope(&self, image: &Image, address: u64) -> Result<Option<Scope>, Error> {
        let module = &image.module;
        let Some((function, _)) = module.function_die(address)? else {
            return Ok(None);
        };
        let unit = module.unit(function.unit)?;
        let mut blocks = Vec::new();
        let mut tree = unit.entries_tree(Some(function.offset))?;
        let walk = Walk {
            module,
            unit: function.unit,
            address,
        };
        walk.block(&unit, tree.root()?, 0, &mut blocks)?;
        blocks.reverse();
        Ok(Some(Scope {
            function: Entry::new(module, function),
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
