//! Types from debugging information, as C: for programs whose source isn't there, or isn't C. In: a type. Out: a name, and
//! definitions that stand before its first use.

use std::collections::HashMap;
use std::fmt::Write as _;

use clew_symbols::types::{BaseKind, Offset, RecordKind, Type};
use clew_symbols::variables::Catalog;

pub struct Types<'a> {
    catalog: &'a Catalog,
    /// Definitions, in the order in which they are needed.
    pub text: String,
    records: HashMap<clew_symbols::types::Entry, String>,
    names: HashMap<String, String>,
    last: u32,
}

impl<'a> Types<'a> {
    pub fn new(catalog: &'a Catalog) -> Types<'a> {
        Types {
            catalog,
            text: String::new(),
            records: HashMap::new(),
            names: HashMap::new(),
            last: 0,
        }
    }

    fn fresh(&mut self) -> String {
        self.last += 1;
        format!("__clew_type_{}", self.last)
    }

    /// A name for what a declaration says, the same for the same.
    fn defined(&mut self, before: &str, behind: &str) -> String {
        let key = format!("{before} @{behind}");
        if let Some(known) = self.names.get(&key) {
            return known.clone();
        }
        let name = self.fresh();
        let _ = writeln!(self.text, "typedef {before} {name}{behind};");
        self.names.insert(key, name.clone());
        name
    }

    /// A type's name.
    pub fn name(&mut self, of: &Type) -> Result<String, String> {
        let looked = self.catalog.look(of).map_err(|error| error.to_string())?;
        Ok(match looked {
            Type::Void | Type::Entry(_) => "void".into(),
            Type::Base(base) => scalar(base.kind, base.size)?.into(),
            Type::Enum(of) => scalar(of.base.kind, of.base.size)?.into(),
            Type::Pointer { to, .. } | Type::Reference(to) => {
                let to = self.name(&to)?;
                self.defined(&format!("{to} *"), "")
            }
            Type::Array { of, count } => {
                let of = self.name(&of)?;
                let count = count.map_or_else(String::new, |count| count.to_string());
                self.defined(&of, &format!("[{count}]"))
            }
            Type::Function(function) => {
                let returns = self.name(&function.returns)?;
                self.defined(&returns, "()")
            }
            Type::Named { of, .. } | Type::Qualified { of, .. } => self.name(&of)?,
            Type::Other { size, .. } => {
                self.defined(&format!("struct {{ unsigned char bytes[{size}]; }}"), "")
            }
            Type::Record(record) => {
                if let Some(known) = self.records.get(&record.entry) {
                    return Ok(known.clone());
                }
                let union = record.kind == RecordKind::Union;
                let word = if union { "union" } else { "struct" };
                let name = format!("{word} {}", self.fresh());
                self.records.insert(record.entry.clone(), name.clone());
                if record.incomplete {
                    return Ok(name);
                }
                let mut inside = String::new();
                let mut at = 0;
                // Compilers other than C's put them in an order of their own.
                let mut members: Vec<_> = record.members.iter().collect();
                members.sort_by_key(|member| match member.offset {
                    Offset::Bytes(offset) => offset,
                    _ => u64::MAX,
                });
                for member in members {
                    let (Offset::Bytes(offset), None) = (&member.offset, &member.bits) else {
                        continue;
                    };
                    let size = self.catalog.size(&member.of).ok().flatten().unwrap_or(0);
                    // Where members overlap, one that can't follow is left out.
                    if *offset < at && !union {
                        continue;
                    }
                    let Some(member_name) = member.name.as_deref().filter(|name| is_word(name))
                    else {
                        continue;
                    };
                    let of = self.name(&member.of)?;
                    if *offset > at && !union {
                        let _ = write!(inside, " unsigned char __clew_pad_{at}[{}];", offset - at);
                    }
                    let _ = write!(inside, " {of} {member_name};");
                    at = match union {
                        true => size.max(at),
                        false => offset + size,
                    };
                }
                if record.size > at && !union {
                    let _ = write!(
                        inside,
                        " unsigned char __clew_pad_{at}[{}];",
                        record.size - at
                    );
                }
                let _ = writeln!(self.text, "{name} {{{inside} }} __attribute__((packed));");
                name
            }
        })
    }
}

fn is_word(name: &str) -> bool {
    let start = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    start
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn scalar(kind: BaseKind, size: u8) -> Result<&'static str, String> {
    Ok(match (kind, size) {
        (BaseKind::Bool, _) => "_Bool",
        (BaseKind::Float, 4) => "float",
        (BaseKind::Float, 8) => "double",
        (BaseKind::Float, 16) => "long double",
        (BaseKind::SignedChar, 1) => "char",
        (BaseKind::UnsignedChar, 1) => "unsigned char",
        (BaseKind::Signed, 1) => "signed char",
        (BaseKind::Signed, 2) => "short",
        (BaseKind::Signed, 4) => "int",
        (BaseKind::Signed, 8) => "long",
        (BaseKind::Signed, 16) => "__int128",
        (_, 1) => "unsigned char",
        (_, 2) => "unsigned short",
        (_, 4) => "unsigned int",
        (_, 8) => "unsigned long",
        (_, 16) => "unsigned __int128",
        _ => return Err("its type has no name in C".into()),
    })
}
