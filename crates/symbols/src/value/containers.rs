//! Containers of C++'s and Rust's standard libraries: a value of such a type in; the text, elements, entries or contents
//! that a person means by it out.
//!
//! They are told by their names and found by their members, as libstdc++ and Rust's library lay them out. What is laid
//! out otherwise is no container here but a plain record, which is always right.

use super::items::{BTree, Walk};
use super::{Place, Value, View};
use crate::location::NoPlace;
use crate::types::{Entry, Language, Offset, Record, Type};
use gimli::constants as dw;
use std::sync::Arc;

/// What a container holds.
#[derive(Clone, Debug)]
pub enum Container {
    /// Bytes of text.
    Text { address: u64, len: u64 },
    /// An array of them.
    Elements(Value),
    /// Found one by one, from first to last, so many of them.
    Items { walk: Walk, count: u64 },
    /// One thing, or none.
    Contents(Option<Value>),
}

/// Parts are looked for so deep.
pub(super) const DEEPEST: usize = 8;
/// More items aren't counted, whatever memory says.
pub(super) const MOST_ITEMS: u64 = 1 << 32;
/// A variant with more is damaged.
const MOST_ALTERNATIVES: u64 = 1 << 10;

impl View<'_> {
    /// What a record holds as a container; none if it is none, or damaged.
    pub fn container(
        &mut self,
        value: &Value,
        record: &Record,
    ) -> Result<Option<Container>, NoPlace> {
        let Some(name) = record.name.as_deref() else {
            return Ok(None);
        };
        let head = name.split('<').next().unwrap_or(name);
        let found = match record.language {
            Language::Cpp => self.cpp(value, record, head),
            Language::Rust => self.rust_container(value, record, name, head),
            _ => Ok(None),
        };
        match found {
            // What isn't readable as a container is shown as it is.
            Err(NoPlace::Unreadable(_) | NoPlace::Unknown(_)) => Ok(None),
            found => found,
        }
    }

    fn cpp(
        &mut self,
        value: &Value,
        record: &Record,
        head: &str,
    ) -> Result<Option<Container>, NoPlace> {
        let Some(rest) = head.strip_prefix("std::") else {
            return Ok(None);
        };
        let plain = rest.strip_prefix("__cxx11::").unwrap_or(rest);
        Ok(match plain {
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
                let pointer = match plain {
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
                    offset: 16,
                    of,
                })
            }
            "deque" => self.deque(value, record)?,
            "map" | "multimap" | "set" | "multiset" => {
                let of = self.item_type(record, &["value_type"])?;
                let first = self.word_of(value, "_M_left")?;
                let count = self.word_of(value, "_M_node_count")?;
                self.items(of, first, count, |first, of| Walk::Tree { first, of })
            }
            "unordered_map" | "unordered_set" | "unordered_multimap" | "unordered_multiset" => {
                let of = self.item_type(record, &["value_type"])?;
                let first = self.word_of(value, "_M_nxt")?;
                let count = self.word_of(value, "_M_element_count")?;
                self.items(of, first, count, |first, of| Walk::Chain {
                    first,
                    offset: 8,
                    of,
                })
            }
            _ => None,
        })
    }

    fn rust_container(
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

    fn text(&mut self, value: &Value, data: &str, len: &str) -> Result<Option<Container>, NoPlace> {
        let Some(data) = self.deep(value, data)? else {
            return Ok(None);
        };
        // Only of bytes: wide characters are numbers.
        let of = match self.catalog.strip(&data.of)? {
            Type::Pointer { to, .. } => self.catalog.size(&to)?,
            _ => None,
        };
        let (address, len) = (self.word(&data)?, self.word_of(value, len)?);
        Ok(match (of, address, len) {
            (Some(1), Some(address), Some(len)) => Some(Container::Text { address, len }),
            _ => None,
        })
    }

    /// The array between two pointers.
    fn between(&mut self, start: &Value, end: &Value) -> Result<Option<Container>, NoPlace> {
        let Type::Pointer { to, .. } = self.catalog.strip(&start.of)? else {
            return Ok(None);
        };
        let size = self.catalog.size(&to)?.unwrap_or(0);
        let (Some(from), Some(to_address)) = (self.word(start)?, self.word(end)?) else {
            return Ok(None);
        };
        let Some(len) = to_address.checked_sub(from).filter(|_| size > 0) else {
            return Ok(None);
        };
        let count = (len % size == 0).then_some(len / size);
        let of = (*to).clone();
        self.array(Some(start.clone()), count, Some(of))
    }

    /// So many elements behind a pointer.
    fn array(
        &mut self,
        data: Option<Value>,
        count: Option<u64>,
        of: Option<Type>,
    ) -> Result<Option<Container>, NoPlace> {
        let (Some(data), Some(count)) = (data, count.filter(|count| *count < MOST_ITEMS)) else {
            return Ok(None);
        };
        let of = match (of, self.catalog.strip(&data.of)?) {
            (Some(of), _) => of,
            (None, Type::Pointer { to, .. }) => (*to).clone(),
            _ => return Ok(None),
        };
        let Some(address) = self.word(&data)? else {
            return Ok(None);
        };
        let array = Type::Array {
            of: Arc::new(of),
            count: Some(count),
        };
        let array = Value::new(array, Place::Memory(address));
        Ok(Some(Container::Elements(array)))
    }

    fn pointee(&mut self, pointer: Option<Value>) -> Result<Option<Container>, NoPlace> {
        let Some(pointer) = pointer else {
            return Ok(None);
        };
        Ok(match self.word(&pointer)? {
            Some(0) => Some(Container::Contents(None)),
            Some(_) => Some(Container::Contents(Some(self.deref(&pointer)?))),
            None => None,
        })
    }

    fn items(
        &self,
        of: Option<Type>,
        first: Option<u64>,
        count: Option<u64>,
        walk: impl FnOnce(u64, Type) -> Walk,
    ) -> Option<Container> {
        let (of, first, count) = (of?, first?, count?);
        (count < MOST_ITEMS).then(|| Container::Items {
            walk: walk(first, of),
            count,
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

    /// A member of that name, of the record or of one within it: the shallowest.
    fn deep(&mut self, value: &Value, name: &str) -> Result<Option<Value>, NoPlace> {
        let mut level = vec![value.clone()];
        for _ in 0..DEEPEST {
            let mut next = Vec::new();
            for value in &level {
                let Type::Record(record) = self.catalog.strip(&value.of)? else {
                    continue;
                };
                for member in &record.members {
                    let Ok(inner) = self.member(value, member, 0) else {
                        continue;
                    };
                    if member.name.as_deref() == Some(name) && !member.base {
                        return Ok(Some(inner));
                    }
                    next.push(inner);
                }
            }
            level = next;
        }
        Ok(None)
    }

    /// The first member that is a pointer, of the record or of one within it.
    fn first_pointer(&mut self, value: &Value, depth: usize) -> Result<Option<Value>, NoPlace> {
        match self.catalog.strip(&value.of)? {
            Type::Pointer { .. } => Ok(Some(value.clone())),
            Type::Record(record) if depth < DEEPEST => {
                for member in &record.members {
                    let inner = self.member(value, member, 0)?;
                    if let Some(found) = self.first_pointer(&inner, depth + 1)? {
                        return Ok(Some(found));
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// A number of at most 64 bits.
    fn word(&mut self, value: &Value) -> Result<Option<u64>, NoPlace> {
        // Rust's `Cap` and the like are records of one number.
        if let Type::Record(record) = self.catalog.strip(&value.of)?
            && let [only] = &record.members[..]
        {
            let inner = self.member(value, only, 0)?;
            return self.word(&inner);
        }
        Ok(self.number(value)?.map(|number| number.signed() as u64))
    }

    fn word_of(&mut self, value: &Value, name: &str) -> Result<Option<u64>, NoPlace> {
        match self.deep(value, name)? {
            Some(member) => self.word(&member),
            None => Ok(None),
        }
    }

    /// The type of items: a typedef or type parameter of the container, whichever of these is found first.
    fn item_type(&self, record: &Record, names: &[&str]) -> Result<Option<Type>, NoPlace> {
        let children = record.entry.children()?;
        for wanted in names {
            for child in &children {
                let tag = child.tag()?;
                let fits = tag == dw::DW_TAG_typedef || tag == dw::DW_TAG_template_type_parameter;
                if fits && child.name()?.as_deref() == Some(wanted) {
                    return Ok(Some(child.type_of()?));
                }
            }
        }
        // A map without its own typedef: its tree has the type as a parameter.
        if names.first() == Some(&"value_type") {
            return self.value_parameter(&record.entry);
        }
        Ok(None)
    }

    /// The type of items of what a map or set is made of.
    fn value_parameter(&self, entry: &Entry) -> Result<Option<Type>, NoPlace> {
        for child in entry.children()? {
            if child.tag()? != dw::DW_TAG_member {
                continue;
            }
            if let Type::Record(inner) = self.catalog.strip(&child.type_of()?)? {
                for parameter in inner.entry.children()? {
                    let is_type = parameter.tag()? == dw::DW_TAG_template_type_parameter;
                    let name = parameter.name()?;
                    if is_type && matches!(name.as_deref(), Some("_Val" | "_Value")) {
                        return Ok(Some(parameter.type_of()?));
                    }
                }
            }
        }
        Ok(None)
    }
}
