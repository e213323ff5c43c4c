//! Containers as LLVM's library for C++ lays them out: a value, its record and its name in; what it holds out.
//!
//! Names of members changed from version to version; where two are named here, the second one is the newer.

use super::Container;
use crate::location::NoPlace;
use crate::types::{Record, Type};
use crate::value::containers::MOST_ITEMS;
use crate::value::items::{Nodes, Walk};
use crate::value::{Place, Value, View};

/// A variant with more is damaged.
const MOST_ALTERNATIVES: u64 = 1 << 10;
const LLVM_NODES: Nodes = Nodes {
    left: 0,
    right: 8,
    parent: 16,
};

impl View<'_> {
    /// `name`: without `std::`, the inner namespace, and what is behind it.
    pub(super) fn llvm_container(
        &mut self,
        value: &Value,
        record: &Record,
        name: &str,
    ) -> Result<Option<Container>, NoPlace> {
        Ok(match name {
            "basic_string" => self.short_or_long(value, record)?,
            "basic_string_view" => match self.text(value, "__data", "__size")? {
                None => self.text(value, "__data_", "__size_")?,
                found => found,
            },
            "vector" => {
                let (start, end) = (self.deep(value, "__begin_")?, self.deep(value, "__end_")?);
                match (start, end) {
                    (Some(start), Some(end)) => self.between(&start, &end)?,
                    _ => None,
                }
            }
            "array" => self.deep(value, "__elems_")?.map(Container::Elements),
            "optional" => {
                let (there, payload) = (
                    self.word_of(value, "__engaged_")?,
                    self.deep(value, "__val_")?,
                );
                match there {
                    Some(0) => Some(Container::Contents(None)),
                    Some(_) => Some(Container::Contents(payload)),
                    None => None,
                }
            }
            "variant" => self.llvm_alternative(value)?,
            "unique_ptr" | "shared_ptr" | "weak_ptr" => {
                let pointer = match self.deep(value, "__ptr_")? {
                    Some(pointer) => self.first_pointer(&pointer, 0)?,
                    None => None,
                };
                self.pointee(pointer)?
            }
            "list" => {
                let of = self.item_type(record, &["value_type", "_Tp"])?;
                let first = self.word_of(value, "__next_")?;
                let count = self.counted(value, "__size_alloc_")?;
                self.items(of, first, count, |first, of| Walk::Chain {
                    first,
                    link: 8,
                    offset: 16,
                    of,
                })
            }
            "deque" => self.llvm_deque(value, record)?,
            "map" | "multimap" | "set" | "multiset" => {
                let of = self.item_type(record, &["value_type"])?;
                let first = self.word_of(value, "__begin_node_")?;
                let count = self.counted(value, "__pair3_")?;
                self.items(of, first, count, |first, of| Walk::Tree {
                    first,
                    nodes: LLVM_NODES,
                    of,
                })
            }
            "unordered_map" | "unordered_set" | "unordered_multimap" | "unordered_multiset" => {
                let of = self.item_type(record, &["value_type"])?;
                // The first node's `__next_` comes later in the record than the table's own.
                let before_first = match self.deep(value, "__p1_")? {
                    None => self.deep(value, "__first_node_")?,
                    found => found,
                };
                let first = match before_first {
                    Some(node) => self.word_of(&node, "__next_")?,
                    None => None,
                };
                let count = self.counted(value, "__p2_")?;
                self.items(of, first, count, |first, of| Walk::Chain {
                    first,
                    link: 0,
                    offset: 16,
                    of,
                })
            }
            _ => None,
        })
    }

    /// How many there are: in a pair with something empty, or by itself.
    fn counted(&mut self, value: &Value, pair: &str) -> Result<Option<u64>, NoPlace> {
        match self.deep(value, pair)? {
            Some(pair) => self.word_of(&pair, "__value_"),
            None => self.word_of(value, "__size_"),
        }
    }

    /// A string has its text in itself, behind a byte with its length, or elsewhere; the first bit tells. Other layouts that
    /// the library can be built with have other sizes or order, which the members tell.
    fn short_or_long(
        &mut self,
        value: &Value,
        record: &Record,
    ) -> Result<Option<Container>, NoPlace> {
        let (Place::Memory(address), 24) = (&value.place, record.size) else {
            return Ok(None);
        };
        let (long, short) = (self.deep(value, "__l")?, self.deep(value, "__s")?);
        let (Some(long), Some(short)) = (long, short) else {
            return Ok(None);
        };
        let (far, near) = (self.deep(&long, "__data_")?, self.deep(&short, "__data_")?);
        let (Some(far), Some(near)) = (far, near) else {
            return Ok(None);
        };
        let of = match self.catalog.strip(&far.of)? {
            Type::Pointer { to, .. } => self.catalog.size(&to)?,
            _ => None,
        };
        let at = |value: &Value| match value.place {
            Place::Memory(place) => place.checked_sub(*address),
            _ => None,
        };
        if (of, at(&far), at(&near)) != (Some(1), Some(16), Some(1)) {
            return Ok(None);
        }
        let first = u64::from(self.read(*address, 1)?[0]);
        Ok(match first & 1 {
            0 => Some(Container::Text {
                address: address + 1,
                len: first >> 1,
            }),
            _ => {
                let (data, len) = (self.word(&far)?, self.word_of(&long, "__size_")?);
                let both = data.zip(len);
                both.map(|(address, len)| Container::Text { address, len })
            }
        })
    }

    fn llvm_deque(&mut self, value: &Value, record: &Record) -> Result<Option<Container>, NoPlace> {
        let Some(of) = self.item_type(record, &["value_type", "_Tp"])? else {
            return Ok(None);
        };
        let size = self.catalog.size(&of)?.unwrap_or(0);
        let table = match self.deep(value, "__map_")? {
            Some(map) => self.word_of(&map, "__begin_")?,
            None => None,
        };
        let start = self.word_of(value, "__start_")?;
        let count = match self.deep(value, "__size_")? {
            Some(pair) => match self.word_of(&pair, "__value_")? {
                None => self.word(&pair)?,
                found => found,
            },
            None => None,
        };
        let (Some(table), Some(start), Some(count)) = (table, start, count) else {
            return Ok(None);
        };
        if size == 0 || count >= MOST_ITEMS || start >= MOST_ITEMS {
            return Ok(None);
        }
        let each = if size < 256 { 4096 / size } else { 16 };
        let walk = Walk::Blocks {
            table,
            each,
            skip: start,
            of,
        };
        Ok(Some(Container::Items { walk, count }))
    }

    /// What a variant holds at the moment. Its union has the first alternative, and a union of the rest.
    fn llvm_alternative(&mut self, value: &Value) -> Result<Option<Container>, NoPlace> {
        let index = self.deep(value, "__index")?;
        let (Some(index), Some(mut union)) = (index, self.deep(value, "__data")?) else {
            return Ok(None);
        };
        let bits = 8 * self.catalog.size(&index.of)?.unwrap_or(8).clamp(1, 8);
        let most = u64::MAX >> (64 - bits);
        let Some(index) = self.word(&index)?.map(|index| index & most) else {
            return Ok(None);
        };
        // An exception left it without any.
        if index == most {
            return Ok(Some(Container::Contents(None)));
        }
        for _ in 0..index.min(MOST_ALTERNATIVES) {
            match self.deep(&union, "__tail")? {
                Some(rest) => union = rest,
                None => return Ok(None),
            }
        }
        let contents = match self.deep(&union, "__head")? {
            Some(head) => self.deep(&head, "__value")?,
            None => None,
        };
        Ok(contents.map(|contents| Container::Contents(Some(contents))))
    }
}
