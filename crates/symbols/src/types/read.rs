//! Entries of debugging information in; types, one level of them, out.

use super::{
    Base, BaseKind, Bits, Entry, Enum, Function, Member, Offset, Record, RecordKind, Type, Variant,
    Variants,
};
use crate::variables::Catalog;
use crate::{Die, Error, Reader};
use gimli::{AttributeValue, DebuggingInformationEntry, DwTag, Reader as _, constants as dw};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
    Rust,
    Other,
}

impl Language {
    pub fn of(code: gimli::DwLang) -> Language {
        match code {
            dw::DW_LANG_C89
            | dw::DW_LANG_C
            | dw::DW_LANG_C99
            | dw::DW_LANG_C11
            | dw::DW_LANG_C17 => Language::C,
            dw::DW_LANG_C_plus_plus
            | dw::DW_LANG_C_plus_plus_03
            | dw::DW_LANG_C_plus_plus_11
            | dw::DW_LANG_C_plus_plus_14
            | dw::DW_LANG_C_plus_plus_17
            | dw::DW_LANG_C_plus_plus_20 => Language::Cpp,
            dw::DW_LANG_Rust => Language::Rust,
            _ => Language::Other,
        }
    }
}

/// A chain of typedefs and qualifiers longer than this is a damaged file's circle.
const LONGEST_CHAIN: usize = 100;

type Raw<'a, 'b> = DebuggingInformationEntry<'a, 'b, Reader>;

impl Entry {
    pub fn new(module: &std::sync::Arc<crate::Module>, die: Die) -> Entry {
        Entry {
            module: module.clone(),
            die,
        }
    }

    /// Another entry of the same unit.
    pub fn beside(&self, offset: gimli::UnitOffset) -> Entry {
        Entry::new(&self.module, Die::new(self.die.unit, offset))
    }

    pub fn attribute(&self, name: gimli::DwAt) -> Result<Option<AttributeValue<Reader>>, Error> {
        let unit = self.module.unit(self.die.unit)?;
        Ok(unit.entry(self.die.offset)?.attr_value(name)?)
    }

    pub fn tag(&self) -> Result<DwTag, Error> {
        let unit = self.module.unit(self.die.unit)?;
        Ok(unit.entry(self.die.offset)?.tag())
    }

    /// The entry that an attribute refers to.
    pub fn referred(&self, name: gimli::DwAt) -> Result<Option<Entry>, Error> {
        let Some(value) = self.attribute(name)? else {
            return Ok(None);
        };
        let die = self.module.follow(self.die.unit, &value)?;
        Ok(die.map(|die| Entry::new(&self.module, die)))
    }

    /// This entry, or what it is an instance or the definition of, if that has the attribute.
    pub fn bearer(&self, name: gimli::DwAt) -> Result<Option<Entry>, Error> {
        let mut entry = self.clone();
        for _ in 0..LONGEST_CHAIN {
            if entry.attribute(name)?.is_some() {
                return Ok(Some(entry));
            }
            let next = match entry.referred(dw::DW_AT_abstract_origin)? {
                Some(next) => Some(next),
                None => entry.referred(dw::DW_AT_specification)?,
            };
            match next {
                Some(next) => entry = next,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// What inlined copies of a variable have in common.
    pub fn origin(&self) -> Result<Entry, Error> {
        let mut entry = self.clone();
        for _ in 0..LONGEST_CHAIN {
            match entry.referred(dw::DW_AT_abstract_origin)? {
                Some(next) => entry = next,
                None => break,
            }
        }
        Ok(entry)
    }

    pub fn name(&self) -> Result<Option<Arc<str>>, Error> {
        match self.bearer(dw::DW_AT_name)? {
            Some(entry) => entry.text(dw::DW_AT_name),
            None => Ok(None),
        }
    }

    pub fn text(&self, name: gimli::DwAt) -> Result<Option<Arc<str>>, Error> {
        let unit = self.module.unit(self.die.unit)?;
        match self.attribute(name)? {
            Some(value) => Ok(Some(unit.attr_string(value)?.to_string_lossy()?.into())),
            None => Ok(None),
        }
    }

    /// The type that the entry has; of one without, `void`.
    pub fn type_of(&self) -> Result<Type, Error> {
        match self.bearer(dw::DW_AT_type)? {
            Some(entry) => Ok(entry
                .referred(dw::DW_AT_type)?
                .map_or(Type::Void, Type::Entry)),
            None => Ok(Type::Void),
        }
    }

    fn number(&self, name: gimli::DwAt) -> Result<Option<u64>, Error> {
        Ok(self.attribute(name)?.and_then(|value| constant(&value)))
    }

    fn flag(&self, name: gimli::DwAt) -> Result<bool, Error> {
        Ok(matches!(
            self.attribute(name)?,
            Some(AttributeValue::Flag(true))
        ))
    }

    /// The entries right below this one.
    pub fn children(&self) -> Result<Vec<Entry>, Error> {
        let unit = self.module.unit(self.die.unit)?;
        let mut tree = unit.entries_tree(Some(self.die.offset))?;
        let mut children = tree.root()?.children();
        let mut all = Vec::new();
        while let Some(child) = children.next()? {
            all.push(self.beside(child.entry().offset()));
        }
        Ok(all)
    }
}

/// An unsigned constant.
pub(crate) fn constant(value: &AttributeValue<Reader>) -> Option<u64> {
    match value {
        AttributeValue::Sdata(value) => Some(*value as u64),
        value => value.udata_value(),
    }
}

/// A constant as it is meant: small forms hold either sign.
fn wide(value: &AttributeValue<Reader>, signed: bool) -> Option<i128> {
    Some(match value {
        AttributeValue::Sdata(value) => i128::from(*value),
        AttributeValue::Data1(value) if signed => i128::from(*value as i8),
        AttributeValue::Data2(value) if signed => i128::from(*value as i16),
        AttributeValue::Data4(value) if signed => i128::from(*value as i32),
        AttributeValue::Data8(value) if signed => i128::from(*value as i64),
        value => match value.udata_value() {
            Some(value) => i128::from(value),
            None => {
                let AttributeValue::Block(block) = value else {
                    return None;
                };
                let bytes = block.to_slice().ok()?;
                let mut whole = [0; 16];
                whole.get_mut(..bytes.len())?.copy_from_slice(&bytes);
                i128::from_le_bytes(whole)
            }
        },
    })
}

impl Catalog {
    /// The type with its outermost level known.
    pub fn look(&self, of: &Type) -> Result<Type, Error> {
        let Type::Entry(entry) = of else {
            return Ok(of.clone());
        };
        if let Some(known) = self.types.borrow().get(entry) {
            return Ok(known.clone());
        }
        // A damaged file's types may contain themselves.
        let Some(_deeper) = self.deeper() else {
            return Err(Error::Missing("the end of types within types".into()));
        };
        let found = self.read_type(entry)?;
        self.types.borrow_mut().insert(entry.clone(), found.clone());
        Ok(found)
    }

    /// What is behind typedefs and qualifiers.
    pub fn strip(&self, of: &Type) -> Result<Type, Error> {
        let mut of = self.look(of)?;
        for _ in 0..LONGEST_CHAIN {
            of = match of {
                Type::Named { of, .. } | Type::Qualified { of, .. } => self.look(&of)?,
                other => return Ok(other),
            };
        }
        Err(Error::Missing("the end of a chain of typedefs".into()))
    }

    /// How many bytes a value takes; none if that isn't known.
    pub fn size(&self, of: &Type) -> Result<Option<u64>, Error> {
        let Some(_deeper) = self.deeper() else {
            return Ok(None);
        };
        Ok(match self.strip(of)? {
            Type::Void => Some(1),
            Type::Base(base) => Some(base.size.into()),
            Type::Pointer { .. } | Type::Reference(_) => Some(8),
            Type::Array { of, count } => match (self.size(&of)?, count) {
                (Some(size), Some(count)) => size.checked_mul(count),
                _ => None,
            },
            Type::Record(record) => (!record.incomplete).then_some(record.size),
            Type::Enum(of) => Some(of.base.size.into()),
            Type::Function(_) => Some(1),
            Type::Other { size, .. } => Some(size),
            Type::Named { .. } | Type::Qualified { .. } | Type::Entry(_) => None,
        })
    }

    fn read_type(&self, entry: &Entry) -> Result<Type, Error> {
        let unit = entry.module.unit(entry.die.unit)?;
        let raw = unit.entry(entry.die.offset)?;
        let inner = || -> Result<Arc<Type>, Error> {
            let of = entry.referred(dw::DW_AT_type)?;
            Ok(Arc::new(of.map_or(Type::Void, Type::Entry)))
        };
        let qualified =
            |word| -> Result<Type, Error> { Ok(Type::Qualified { word, of: inner()? }) };
        let name = || entry.text(dw::DW_AT_name);
        Ok(match raw.tag() {
            dw::DW_TAG_base_type => read_base(entry, &raw)?,
            dw::DW_TAG_pointer_type => Type::Pointer {
                to: inner()?,
                name: name()?,
            },
            dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                Type::Reference(inner()?)
            }
            dw::DW_TAG_const_type => qualified("const")?,
            dw::DW_TAG_volatile_type => qualified("volatile")?,
            dw::DW_TAG_restrict_type => qualified("restrict")?,
            dw::DW_TAG_atomic_type => qualified("_Atomic")?,
            dw::DW_TAG_typedef | dw::DW_TAG_template_alias => Type::Named {
                name: self.path(entry)?.unwrap_or_else(|| "?".into()),
                of: inner()?,
            },
            dw::DW_TAG_subrange_type => Type::Named {
                name: name()?.unwrap_or_else(|| "?".into()),
                of: inner()?,
            },
            dw::DW_TAG_array_type => self.read_array(entry)?,
            dw::DW_TAG_structure_type => self.read_record(entry, RecordKind::Struct)?,
            dw::DW_TAG_class_type => self.read_record(entry, RecordKind::Class)?,
            dw::DW_TAG_union_type => self.read_record(entry, RecordKind::Union)?,
            dw::DW_TAG_enumeration_type => self.read_enum(entry)?,
            dw::DW_TAG_subroutine_type | dw::DW_TAG_subprogram => {
                Type::Function(Arc::new(read_function(entry)?))
            }
            dw::DW_TAG_unspecified_type => match name()?.as_deref() {
                Some("decltype(nullptr)") => Type::Void.pointer(),
                _ => Type::Void,
            },
            tag => Type::Other {
                name: match name()? {
                    Some(name) => name,
                    None => tag
                        .static_string()
                        .unwrap_or("DW_TAG_?")
                        .trim_start_matches("DW_TAG_")
                        .replace('_', " ")
                        .into(),
                },
                size: entry.number(dw::DW_AT_byte_size)?.unwrap_or(8),
            },
        })
    }

    fn read_array(&self, entry: &Entry) -> Result<Type, Error> {
        let mut of = entry
            .referred(dw::DW_AT_type)?
            .map_or(Type::Void, Type::Entry);
        let mut counts = Vec::new();
        for child in entry.children()? {
            if child.tag()? != dw::DW_TAG_subrange_type {
                continue;
            }
            let lower = child.number(dw::DW_AT_lower_bound)?.unwrap_or(0);
            let count = match child.number(dw::DW_AT_count)? {
                Some(count) => Some(count),
                // An upper bound of -1 is how some say "none".
                None => child
                    .number(dw::DW_AT_upper_bound)?
                    .map(|upper| upper.wrapping_sub(lower).wrapping_add(1)),
            };
            counts.push(count);
        }
        if counts.is_empty() {
            counts.push(None);
        }
        for count in counts.into_iter().rev() {
            of = Type::Array {
                of: Arc::new(of),
                count,
            };
        }
        Ok(of)
    }

    fn read_record(&self, entry: &Entry, kind: RecordKind) -> Result<Type, Error> {
        let language = self.language(entry)?;
        let name = self.path(entry)?;
        let incomplete = entry.flag(dw::DW_AT_declaration)?;
        if incomplete
            && let Some(name) = &name
            && let Some(whole) = self.definition(entry, name)?
        {
            return self.look(&Type::Entry(whole));
        }
        let mut record = Record {
            kind,
            name,
            language,
            size: entry.number(dw::DW_AT_byte_size)?.unwrap_or(0),
            incomplete,
            members: Vec::new(),
            variants: None,
            entry: entry.clone(),
        };
        for child in entry.children()? {
            match child.tag()? {
                dw::DW_TAG_member => {
                    // Static members are variables.
                    let elsewhere =
                        child.flag(dw::DW_AT_external)? || child.flag(dw::DW_AT_declaration)?;
                    if !elsewhere {
                        record.members.push(read_member(&child)?);
                    }
                }
                dw::DW_TAG_inheritance => {
                    let mut member = read_member(&child)?;
                    member.base = true;
                    if let Type::Record(base) = self.strip(&member.of)? {
                        member.name = base.name.clone();
                    }
                    record.members.push(member);
                }
                dw::DW_TAG_variant_part => record.variants = Some(read_variants(&child)?),
                _ => {}
            }
        }
        Ok(Type::Record(Arc::new(record)))
    }

    fn read_enum(&self, entry: &Entry) -> Result<Type, Error> {
        let under = match entry.referred(dw::DW_AT_type)? {
            Some(under) => Some(self.strip(&Type::Entry(under))?),
            None => None,
        };
        let size = entry.number(dw::DW_AT_byte_size)?;
        let mut base = match under {
            Some(Type::Base(base)) => base,
            _ => Base {
                name: "unsigned int".into(),
                size: 4,
                kind: BaseKind::Unsigned,
            },
        };
        if let Some(size) = size.and_then(|size| u8::try_from(size).ok()) {
            base.size = size;
        }
        let mut values = Vec::new();
        for child in entry.children()? {
            if child.tag()? != dw::DW_TAG_enumerator {
                continue;
            }
            if let (Some(name), Some(value)) = (
                child.text(dw::DW_AT_name)?,
                child.attribute(dw::DW_AT_const_value)?,
            ) && let Some(value) = wide(&value, base.kind.signed())
            {
                values.push((name, value));
            }
        }
        Ok(Type::Enum(Arc::new(Enum {
            name: self.path(entry)?,
            language: self.language(entry)?,
            base,
            values,
            scoped: entry.flag(dw::DW_AT_enum_class)?,
        })))
    }
}

fn read_base(entry: &Entry, raw: &Raw<'_, '_>) -> Result<Type, Error> {
    let name = entry.text(dw::DW_AT_name)?.unwrap_or_else(|| "?".into());
    let size = entry.number(dw::DW_AT_byte_size)?.unwrap_or(0);
    let encoding = match raw.attr_value(dw::DW_AT_encoding)? {
        Some(AttributeValue::Encoding(encoding)) => encoding,
        _ => dw::DW_ATE_unsigned,
    };
    let kind = match (encoding, size) {
        // Rust's `()` and `!` are base types of no size.
        (_, 0) => return Ok(Type::Other { name, size }),
        (dw::DW_ATE_boolean, 1..=8) => BaseKind::Bool,
        (dw::DW_ATE_float, 2 | 4 | 8 | 10 | 12 | 16) => BaseKind::Float,
        (dw::DW_ATE_signed, 1..=16) => BaseKind::Signed,
        (dw::DW_ATE_unsigned | dw::DW_ATE_address, 1..=16) => BaseKind::Unsigned,
        (dw::DW_ATE_signed_char, 1) => BaseKind::SignedChar,
        (dw::DW_ATE_unsigned_char, 1) => BaseKind::UnsignedChar,
        (dw::DW_ATE_signed_char, 2..=16) => BaseKind::Signed,
        (dw::DW_ATE_unsigned_char, 2..=16) => BaseKind::Unsigned,
        (dw::DW_ATE_UTF, 1..=4) => BaseKind::Unicode,
        _ => return Ok(Type::Other { name, size }),
    };
    Ok(Type::Base(Base {
        name,
        size: size as u8,
        kind,
    }))
}

fn read_member(entry: &Entry) -> Result<Member, Error> {
    let of = entry
        .referred(dw::DW_AT_type)?
        .map_or(Type::Void, Type::Entry);
    let mut offset = match entry.attribute(dw::DW_AT_data_member_location)? {
        None => Offset::Bytes(0),
        Some(value) => match constant(&value) {
            Some(offset) => Offset::Bytes(offset),
            None => plain_offset(&value)?.map_or(Offset::Computed(entry.clone()), Offset::Bytes),
        },
    };
    let size = entry.number(dw::DW_AT_bit_size)?;
    let mut bits = None;
    if let Some(size) = size {
        let start = match &offset {
            Offset::Bytes(bytes) => bytes * 8,
            Offset::Computed(_) => 0,
        };
        let from = if let Some(from) = entry.number(dw::DW_AT_data_bit_offset)? {
            start + from
        } else if let Some(from) = entry.number(dw::DW_AT_bit_offset)? {
            // Counted from the most significant bit of an integer of `byte_size`.
            let whole = entry.number(dw::DW_AT_byte_size)?.unwrap_or(4) * 8;
            (start + whole).wrapping_sub(from).wrapping_sub(size)
        } else {
            start
        };
        offset = Offset::Bytes(from / 8);
        bits = Some(Bits {
            from: (from % 8) as u32,
            size: size.min(128) as u32,
        });
    }
    Ok(Member {
        name: entry.text(dw::DW_AT_name)?,
        of,
        offset,
        bits,
        base: false,
        artificial: entry.flag(dw::DW_AT_artificial)?,
    })
}

/// DWARF 2 wrote offsets as expressions: DW_OP_plus_uconst N.
fn plain_offset(value: &AttributeValue<Reader>) -> Result<Option<u64>, Error> {
    let Some(expression) = value.exprloc_value() else {
        return Ok(None);
    };
    let mut bytes = expression.0;
    if bytes.read_u8()? != dw::DW_OP_plus_uconst.0 {
        return Ok(None);
    }
    let offset = bytes.read_uleb128()?;
    Ok(bytes.is_empty().then_some(offset))
}

fn read_variants(entry: &Entry) -> Result<Variants, Error> {
    let tag = match entry.referred(dw::DW_AT_discr)? {
        Some(tag) => Some(read_member(&tag)?),
        None => None,
    };
    let mut variants = Vec::new();
    for child in entry.children()? {
        if child.tag()? != dw::DW_TAG_variant {
            continue;
        }
        let value = child.attribute(dw::DW_AT_discr_value)?;
        let tag = value.as_ref().and_then(|value| wide(value, false));
        for member in child.children()? {
            if member.tag()? == dw::DW_TAG_member {
                variants.push(Variant {
                    tag: tag.map(|tag| tag as u128),
                    member: read_member(&member)?,
                });
                break;
            }
        }
    }
    Ok(Variants { tag, variants })
}

fn read_function(entry: &Entry) -> Result<Function, Error> {
    let mut parameters = Vec::new();
    let mut variadic = false;
    for child in entry.children()? {
        match child.tag()? {
            dw::DW_TAG_formal_parameter => parameters.push(child.type_of()?),
            dw::DW_TAG_unspecified_parameters => variadic = true,
            _ => {}
        }
    }
    let prototyped = match entry.bearer(dw::DW_AT_prototyped)? {
        Some(bearer) => bearer.flag(dw::DW_AT_prototyped)?,
        None => false,
    };
    Ok(Function {
        returns: entry.type_of()?,
        open: parameters.is_empty() && !prototyped,
        parameters,
        variadic,
    })
}
