//! Containers of C++'s and Rust's standard libraries: a value of such a type in; the text, elements, entries or contents
//! that a person means by it out.
//!
//! They are told by their names and found by their members. What is laid out otherwise than a library is known to do is no
//! container here but a plain record, which is always right.
//!
//! * [`gnu`], [`llvm`]: the two libraries of C++
//! * [`rust`]: that of Rust

mod gnu;
mod llvm;
mod rust;

use super::items::Walk;
use super::{Place, Value, View};
use crate::location::NoPlace;
use crate::types::{Entry, Language, Record, Type};
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

/// Parts are looked for so deep: a variant of LLVM's has ten bases.
pub(super) const DEEPEST: usize = 12;
/// More items aren't counted, whatever memory says.
pub(super) const MOST_ITEMS: u64 = 1 << 32;

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
            Language::Cpp => self.cpp_container(value, record, head),
            Language::Rust => self.rust_container(value, record, name, head),
            _ => Ok(None),
        };
        match found {
            // What isn't readable as a container is shown as it is.
            Err(NoPlace::Unreadable(_) | NoPlace::Unknown(_)) => Ok(None),
            found => found,
        }
    }

    /// Which library it is, its inner namespace tells: there is none in most of GNU's names, and always one in LLVM's
    /// (`__1`, `__ndk1`, `__Cr`).
    fn cpp_container(
        &mut self,
        value: &Value,
        record: &Record,
        head: &str,
    ) -> Result<Option<Container>, NoPlace> {
        let Some(name) = head.strip_prefix("std::") else {
            return Ok(None);
        };
        match name.split_once("::") {
            None => self.gnu_container(value, record, name),
            Some(("__cxx11", name)) => self.gnu_container(value, record, name),
            Some((inner, name)) if inner.starts_with("__") => {
                self.llvm_container(value, record, name)
            }
            Some(_) => Ok(None),
        }
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
