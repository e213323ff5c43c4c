//! Containers as GNU's library for C++ lays them out: a value, its record and its name in; what it holds out.

use super::Container;
use crate::location::NoPlace;
use crate::types::{Record, Type};
use crate::value::containers::MOST_ITEMS;
use crate::value::items::{Nodes, Walk};
use crate::value::{Place, Value, View};

/// A variant with more is damaged.
const MOST_ALTERNATIVES: u64 = 1 << 10;
/// Color and parent are the first words, then left and right.
const GNU_NODES: Nodes = Nodes {
    left: 16,
    right: 24,
    parent: 8,
};

impl View<'_> {
    /// `name`: without `std::` and what is behind it.
    pub(super) fn gnu_container(
        &mut self,
        value: &Value,
        record: &Record,
        name: &str,
    ) -> Result<Option<Container>, NoPlace> {
        Ok(match name {
            "basic_string" => self.text(value, "_M_p", "_M_string_length")?,
            "basic_string_view" => self.text(value, "_M_str", "_M_len")?,
            "vector" => {
                let (start, end) = (
                    self.deep(value, "_M_start")?,
                    self.deep(value, "_M_finish")?,
                );
                match (start, end) {
                    (Some(start), Some(end)) => self.between(&start, &end)?,
                    _ => None,
                }
            }
            "array" => self.deep(value, "_M_elems")?.map(Container::Elements),
            "optional" => {
                let (there, payload) = (
                    self.deep(value, "_M_engaged")?,
                    self.deep(value, "_M_value")?,
                );
                match there.map(|there| self.word(&there)).transpose()?.flatten() {
                    Some(0) => Some(Container::Contents(None)),
                    Some(_) => Some(Container::Contents(payload)),
                    None => None,
                }
            }
            "variant" => self.alternative(value)?,
            "unique_ptr" | "shared_ptr" | "weak_ptr" => {
                let pointer = match name {
                    "unique_ptr" => self.first_pointer(value, 0)?,
                    _ => self.deep(value, "_M_ptr")?,
                };
                self.pointee(pointer)?
            }
            "list" => {
                let of = self.item_type(record, &["value_type", "_Tp"])?;
                let first = self.word_of(value, "_M_next")?;
                let count = self.word_of(value, "_M_size")?;
                self.items(of, first, count, |first, of| Walk::Chain {
                    first,
                    link: 0,
                    offset: 16,
                    of,
                })
            }
            "deque" => self.deque(value, record)?,
            "map" | "multimap" | "set" | "multiset" => {
                let of = self.item_type(record, &["value_type"])?;
                let first = self.word_of(value, "_M_left")?;
                let count = self.word_of(value, "_M_node_count")?;
                self.items(of, first, count, |first, of| Walk::Tree {
                    first,
                    nodes: GNU_NODES,
                    of,
                })
            }
            "unordered_map" | "unordered_set" | "unordered_multimap" | "unordered_multiset" => {
                let of = self.item_type(record, &["value_type"])?;
                let first = self.word_of(value, "_M_nxt")?;
                let count = self.word_of(value, "_M_element_count")?;
                self.items(of, first, count, |first, of| Walk::Chain {
                    first,
                    link: 0,
                    offset: 8,
                    of,
                })
            }
            _ => None,
        })
    }

    fn deque(&mut self, value: &Value, record: &Record) -> Result<Option<Container>, NoPlace> {
        let Some(of) = self.item_type(record, &["value_type", "_Tp"])? else {
            return Ok(None);
        };
        let size = self.catalog.size(&of)?.unwrap_or(0);
        let (Some(start), Some(finish)) = (
            self.deep(value, "_M_start")?,
            self.deep(value, "_M_finish")?,
        ) else {
            return Ok(None);
        };
        let mut end = |of: &Value| -> Result<Option<[u64; 3]>, NoPlace> {
            let mut words = [0; 3];
            for (word, name) in words.iter_mut().zip(["_M_cur", "_M_first", "_M_node"]) {
                match self.word_of(of, name)? {
                    Some(found) => *word = found,
                    None => return Ok(None),
                }
            }
            Ok(Some(words))
        };
        let (Some([cur, first, node]), Some([last_cur, last_first, last_node])) =
            (end(&start)?, end(&finish)?)
        else {
            return Ok(None);
        };
        if size == 0 || cur < first || last_cur < last_first || last_node < node {
            return Ok(None);
        }
        let each = if size < 512 { 512 / size } else { 1 };
        let skip = (cur - first) / size;
        let count = (last_node - node) / 8 * each + (last_cur - last_first) / size;
        let walk = Walk::Blocks {
            table: node,
            each,
            skip,
            of,
        };
        Ok(count
            .checked_sub(skip)
            .filter(|count| *count < MOST_ITEMS)
            .map(|count| Container::Items { walk, count }))
    }

    /// C++'s `variant`: what it holds at the moment. Its union has the first alternative, and a union of the rest.
    fn alternative(&mut self, value: &Value) -> Result<Option<Container>, NoPlace> {
        let index = self.deep(value, "_M_index")?;
        let (Some(index), Some(mut union)) = (index, self.deep(value, "_M_u")?) else {
            return Ok(None);
        };
        let bits = 8 * self.catalog.size(&index.of)?.unwrap_or(8).min(8);
        let Some(index) = self.word(&index)? else {
            return Ok(None);
        };
        let index = index & (u64::MAX >> (64 - bits.max(1)));
        // An exception left it without any.
        if index == u64::MAX >> (64 - bits.max(1)) {
            return Ok(Some(Container::Contents(None)));
        }
        for _ in 0..index.min(MOST_ALTERNATIVES) {
            match self.deep(&union, "_M_rest")? {
                Some(rest) => union = rest,
                None => return Ok(None),
            }
        }
        let Some(first) = self.deep(&union, "_M_first")? else {
            return Ok(None);
        };
        let (Type::Record(record), Place::Memory(address)) =
            (self.catalog.strip(&first.of)?, &first.place)
        else {
            return Ok(None);
        };
        let of = self.item_type(&record, &["_Type"])?;
        let contents = of.map(|of| Value::new(of, Place::Memory(*address)));
        Ok(contents.map(|contents| Container::Contents(Some(contents))))
    }
}
