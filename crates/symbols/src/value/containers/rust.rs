//! Containers of Rust's library: a value, its record and its name in; what it holds out.

use std::sync::Arc;

use super::Container;
use crate::location::NoPlace;
use crate::types::{Offset, Record, Type};
use crate::value::containers::{DEEPEST, MOST_ITEMS};
use crate::value::items::{BTree, Walk};
use crate::value::{Value, View};

impl View<'_> {
    pub(super) fn rust_container(
        &mut self,
        value: &Value,
        record: &Record,
        name: &str,
        head: &str,
    ) -> Result<Option<Container>, NoPlace> {
        if matches!(name, "&str" | "&mut str") {
            return self.text(value, "data_ptr", "length");
        }
        if name.starts_with("&[") || name.starts_with("&mut [") {
            let data = self.deep(value, "data_ptr")?;
            let count = self.word_of(value, "length")?;
            return self.array(data, count, None);
        }
        Ok(match head {
            "alloc::string::String" => {
                let data = self.first_pointer(value, 0)?;
                let address = data.map(|data| self.word(&data)).transpose()?.flatten();
                match (address, self.word_of(value, "len")?) {
                    (Some(address), Some(len)) => Some(Container::Text { address, len }),
                    _ => None,
                }
            }
            "alloc::vec::Vec" => {
                let of = self.item_type(record, &["T"])?;
                let data = self.first_pointer(value, 0)?;
                let count = self.word_of(value, "len")?;
                self.array(data, count, of)?
            }
            "alloc::collections::vec_deque::VecDeque" => self.ring(value, record)?,
            "alloc::collections::btree::map::BTreeMap"
            | "alloc::collections::btree::set::BTreeSet" => self.btree(value, record)?,
            "std::collections::hash::map::HashMap" | "std::collections::hash::set::HashSet" => {
                self.buckets(value)?
            }
            _ => None,
        })
    }

    /// Rust's `VecDeque`.
    fn ring(&mut self, value: &Value, record: &Record) -> Result<Option<Container>, NoPlace> {
        let Some(of) = self.item_type(record, &["T"])? else {
            return Ok(None);
        };
        let (first, count) = (self.word_of(value, "head")?, self.word_of(value, "len")?);
        let buffer = self.deep(value, "buf")?;
        let data = match &buffer {
            Some(buffer) => self.first_pointer(buffer, 0)?,
            None => None,
        };
        let room = match &buffer {
            Some(buffer) => self.word_of(buffer, "cap")?,
            None => None,
        };
        let data = data.map(|data| self.word(&data)).transpose()?.flatten();
        let (Some(data), Some(room), Some(first), Some(count)) = (data, room, first, count) else {
            return Ok(None);
        };
        if count > room || count >= MOST_ITEMS || (first >= room && count > 0) {
            return Ok(None);
        }
        let walk = Walk::Ring {
            data,
            room,
            first,
            of,
        };
        Ok(Some(Container::Items { walk, count }))
    }

    /// Rust's ordered maps and sets.
    fn btree(&mut self, value: &Value, record: &Record) -> Result<Option<Container>, NoPlace> {
        let Some(length) = self.word_of(value, "length")? else {
            return Ok(None);
        };
        // A set is a map of keys to nothing.
        let map = match self.deep(value, "map")? {
            Some(map) => match self.catalog.strip(&map.of)? {
                Type::Record(record) => record,
                _ => return Ok(None),
            },
            None => Arc::new(record.clone()),
        };
        let (key, of) = (self.item_type(&map, &["K"])?, self.item_type(&map, &["V"])?);
        let (Some(key), Some(of)) = (key, of) else {
            return Ok(None);
        };
        let mut tree = BTree {
            node: 0,
            height: 0,
            keys: 0,
            values: 0,
            len: 0,
            edges: 0,
            key,
            of,
        };
        if length > 0 {
            let Some(root) = self.deep(value, "root")? else {
                return Ok(None);
            };
            let Some(root) = self.present_variant(&root)? else {
                return Ok(None);
            };
            let Some(height) = self.word_of(&root, "height")? else {
                return Ok(None);
            };
            let pointer = self.first_pointer(&root, 0)?;
            let Some(pointer) = pointer else {
                return Ok(None);
            };
            let (Some(node), leaf) = (self.word(&pointer)?, self.deref(&pointer)?) else {
                return Ok(None);
            };
            let Type::Record(leaf) = self.catalog.strip(&leaf.of)? else {
                return Ok(None);
            };
            let offset = |name: &str| {
                let mut members = leaf.members.iter();
                let member = members.find(|member| member.name.as_deref() == Some(name))?;
                match member.offset {
                    Offset::Bytes(offset) => Some(offset),
                    _ => None,
                }
            };
            let (Some(keys), Some(values), Some(len)) =
                (offset("keys"), offset("vals"), offset("len"))
            else {
                return Ok(None);
            };
            // An inner node is a leaf, and its children behind it.
            let edges = leaf.size.next_multiple_of(8);
            tree = BTree {
                node,
                height,
                keys,
                values,
                len,
                edges,
                ..tree
            };
        }
        Ok((length < MOST_ITEMS).then(|| Container::Items {
            walk: Walk::BTree(Box::new(tree)),
            count: length,
        }))
    }

    /// Rust's hash tables.
    fn buckets(&mut self, value: &Value) -> Result<Option<Container>, NoPlace> {
        let Some(table) = self.raw_table(value, 0)? else {
            return Ok(None);
        };
        let Type::Record(record) = self.catalog.strip(&table.of)? else {
            return Ok(None);
        };
        let of = self.item_type(&record, &["T"])?;
        let control = self.deep(&table, "ctrl")?;
        let control = match control {
            Some(control) => match self.first_pointer(&control, 0)? {
                Some(pointer) => self.word(&pointer)?,
                None => self.word(&control)?,
            },
            None => None,
        };
        let mask = self.word_of(&table, "bucket_mask")?;
        let items = self.word_of(&table, "items")?;
        let (Some(of), Some(control), Some(mask), Some(count)) = (of, control, mask, items) else {
            return Ok(None);
        };
        if mask >= MOST_ITEMS || count > mask.saturating_add(1) {
            return Ok(None);
        }
        Ok(Some(Container::Items {
            walk: Walk::Buckets {
                control,
                buckets: mask + 1,
                of,
            },
            count,
        }))
    }

    fn raw_table(&mut self, value: &Value, depth: usize) -> Result<Option<Value>, NoPlace> {
        let Type::Record(record) = self.catalog.strip(&value.of)? else {
            return Ok(None);
        };
        let name = record.name.as_deref().unwrap_or_default();
        if name.starts_with("hashbrown::raw::RawTable<") {
            return Ok(Some(value.clone()));
        }
        if depth < DEEPEST {
            for member in &record.members {
                let inner = self.member(value, member, 0)?;
                if let Some(found) = self.raw_table(&inner, depth + 1)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }
}
