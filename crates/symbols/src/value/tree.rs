//! Values as trees: a value in; its text, and what is within it (members, elements, what a pointer points at, what a
//! container holds), one level at a time and some of many, out.

use super::containers::Container;
use super::items::{Item, Walk};
use super::{Place, Value, View};
use crate::location::NoPlace;
use crate::types::{Member, Type};
use crate::variables::Catalog;

/// What is within a value.
#[derive(Clone, Debug)]
pub enum Within {
    Nothing,
    /// Parts with names.
    Parts(Vec<Part>),
    /// So many elements of an array, numbered.
    Elements {
        array: Value,
        count: u64,
    },
    /// So many items that are found one by one, numbered. A `pair` of a map is shown by its key.
    Items {
        walk: Walk,
        count: u64,
    },
}

/// A part of a value.
#[derive(Clone, Debug)]
pub struct Part {
    pub name: String,
    pub kind: PartKind,
    pub value: Result<Value, NoPlace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    Member,
    /// A base class.
    Base,
    Element,
    /// What a pointer or reference points at, or a container holds.
    Target,
}

impl Within {
    pub fn count(&self) -> u64 {
        match self {
            Within::Nothing => 0,
            Within::Parts(parts) => parts.len() as u64,
            Within::Elements { count, .. } | Within::Items { count, .. } => *count,
        }
    }

    /// Whether there may be so many that one asks for some of them.
    pub fn numbered(&self) -> bool {
        matches!(self, Within::Elements { .. } | Within::Items { .. })
    }
}

impl View<'_> {
    /// What is within a value.
    pub fn within(&mut self, value: &Value) -> Result<Within, NoPlace> {
        let of = self.catalog.strip(&value.of)?;
        Ok(match &of {
            Type::Reference(_) => {
                let target = self.deref(value)?;
                // There are no references to references, except in a damaged file.
                match self.catalog.strip(&target.of)? {
                    Type::Reference(_) => Within::Nothing,
                    _ => self.within(&target)?,
                }
            }
            Type::Pointer { to, .. } => self.behind(value, to)?,
            Type::Array {
                count: Some(count), ..
            } => Within::Elements {
                array: value.clone(),
                count: *count,
            },
            Type::Record(record) => {
                if record.incomplete {
                    return Ok(Within::Nothing);
                }
                match self.container(value, record)? {
                    Some(Container::Text { .. }) => Within::Nothing,
                    Some(Container::Elements(array)) => self.within(&array)?,
                    Some(Container::Items { walk, count }) => Within::Items { walk, count },
                    Some(Container::Contents(contents)) => {
                        let part = |value| Part {
                            name: "*".into(),
                            kind: PartKind::Target,
                            value: Ok(value),
                        };
                        Within::Parts(contents.map(part).into_iter().collect())
                    }
                    None => self.parts(value)?,
                }
            }
            _ => Within::Nothing,
        })
    }

    /// What a pointer points at.
    fn behind(&mut self, value: &Value, to: &Type) -> Result<Within, NoPlace> {
        match self.catalog.strip(to)? {
            // Text is shown with the pointer.
            Type::Void | Type::Function(_) => return Ok(Within::Nothing),
            Type::Record(record) if record.incomplete => return Ok(Within::Nothing),
            _ => {}
        }
        if !matches!(value.place, Place::Synthetic { .. }) {
            let bytes = self.bytes(value, 8)?;
            if bytes.iter().all(|byte| *byte == 0) {
                return Ok(Within::Nothing);
            }
        }
        let target = self.deref(value)?;
        Ok(Within::Parts(vec![Part {
            name: "*".into(),
            kind: PartKind::Target,
            value: Ok(target),
        }]))
    }

    /// The variant that is there, of a Rust enum.
    pub(super) fn present_variant(&mut self, value: &Value) -> Result<Option<Value>, NoPlace> {
        let Type::Record(record) = self.catalog.strip(&value.of)? else {
            return Ok(None);
        };
        match (&record.variants, self.variant(value, &record)?) {
            (Some(all), Some(n)) => Ok(Some(self.member(value, &all.variants[n].member, 0)?)),
            _ => Ok(None),
        }
    }

    /// A record's members; of a Rust enum, those of the variant that is there.
    fn parts(&mut self, value: &Value) -> Result<Within, NoPlace> {
        let Type::Record(record) = self.catalog.strip(&value.of)? else {
            return Ok(Within::Nothing);
        };
        if record.variants.is_some() {
            return match self.present_variant(value)? {
                Some(inner) => self.parts(&inner),
                None => Ok(Within::Nothing),
            };
        }
        let bias = self.bias_of(&record);
        let members = record.members.clone();
        let members = members
            .iter()
            .filter(|member| !self.catalog.is_empty_base(member));
        let members: Vec<&Member> = members.collect();
        let parts = members.into_iter().map(|member| Part {
            name: part_name(member),
            kind: match member.base {
                true => PartKind::Base,
                false => PartKind::Member,
            },
            value: self.member(value, member, bias),
        });
        Ok(Within::Parts(parts.collect()))
    }

    /// Parts from number `from` on, at most `most`.
    pub fn some(&mut self, within: &Within, from: u64, most: u64) -> Vec<Part> {
        match within {
            Within::Nothing => Vec::new(),
            Within::Parts(parts) => {
                let wanted = parts.iter().skip(from as usize).take(most as usize);
                wanted.cloned().collect()
            }
            Within::Elements { array, count } => {
                let to = (*count).min(from.saturating_add(most));
                let element = |n: u64| Part {
                    name: format!("[{n}]"),
                    kind: PartKind::Element,
                    value: self.element(array, n as i64),
                };
                (from..to).map(element).collect()
            }
            Within::Items { walk, count } => {
                let items = self.walk(walk, *count, from, most);
                let numbered = (from..).zip(items);
                numbered.map(|(n, item)| self.item(n, item)).collect()
            }
        }
    }

    /// An item of a container: of a map, the value by its key.
    fn item(&mut self, n: u64, item: Item) -> Part {
        let name = match &item.key {
            Some(key) => self.text_of(key),
            None => n.to_string(),
        };
        Part {
            name: format!("[{name}]"),
            kind: PartKind::Element,
            value: Ok(item.value),
        }
    }

    /// The two halves of a `std::pair`, or of Rust's tuple of two; a set's items have one half.
    pub(super) fn pair(&mut self, item: &Value) -> Option<(Value, Value)> {
        let Ok(Type::Record(record)) = self.catalog.strip(&item.of) else {
            return None;
        };
        let name = record.name.as_deref().unwrap_or_default();
        let named = |wanted: &str| {
            let mut members = record.members.iter();
            members.find(|member| member.name.as_deref() == Some(wanted))
        };
        let head = name.split('<').next().unwrap_or(name);
        let (first, second) = match head.starts_with("std::") && head.ends_with("::pair") {
            true => (named("first")?, named("second")?),
            false if name.starts_with('(') && record.members.len() == 2 => {
                (named("__0")?, named("__1")?)
            }
            false => return None,
        };
        let key = self.member(item, first, 0).ok()?;
        let value = self.member(item, second, 0).ok()?;
        Some((key, value))
    }
}

impl Catalog {
    /// A base class without members, which says nothing.
    pub(super) fn is_empty_base(&self, member: &Member) -> bool {
        member.base
            && matches!(self.strip(&member.of), Ok(Type::Record(record)) if record.members.is_empty())
    }
}

/// What a member is called; one without a name by what it is.
fn part_name(member: &Member) -> String {
    match &member.name {
        Some(name) => match name.strip_prefix("__") {
            // Rust's tuples.
            Some(number) if number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty() => {
                number.to_string()
            }
            _ => name.to_string(),
        },
        None => "(anonymous)".into(),
    }
}
