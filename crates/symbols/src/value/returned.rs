//! What a function has returned: its type and the registers right behind the call in, the value out (the System V
//! calling convention of x86-64).

use super::{Place, Value, View};
use crate::location::NoPlace;
use crate::types::{BaseKind, Type};
use gimli::constants as dw;

/// The registers that values are returned in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReturnRegisters {
    pub rax: u64,
    pub rdx: u64,
    /// Their lower halves.
    pub xmm0: u64,
    pub xmm1: u64,
}

/// Where eight bytes of a value are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    None,
    Integer,
    Float,
}

/// Records within records.
const DEEPEST: usize = 16;
/// Elements of an array within 16 bytes.
const MOST: u64 = 16;

impl View<'_> {
    /// The value that a function of this type has just returned; none for `void`, and for what isn't returned in these
    /// registers or in memory.
    pub fn returned(
        &mut self,
        of: &Type,
        registers: &ReturnRegisters,
    ) -> Result<Option<Value>, NoPlace> {
        let stripped = self.catalog.strip(of)?;
        if matches!(stripped, Type::Void) {
            return Ok(None);
        }
        let Some(size) = self.catalog.size(of)? else {
            return Ok(None);
        };
        // Rust's `()` is nothing.
        if size == 0 {
            return Ok(None);
        }
        let in_memory = match &stripped {
            Type::Record(record) => {
                let by_reference = match record.entry.attribute(dw::DW_AT_calling_convention)? {
                    Some(gimli::AttributeValue::CallingConvention(convention)) => {
                        convention == dw::DW_CC_pass_by_reference
                    }
                    _ => false,
                };
                size > 16 || by_reference
            }
            _ => false,
        };
        if in_memory {
            let place = Place::Memory(registers.rax);
            return Ok(Some(Value::new(of.clone(), place)));
        }
        let mut classes = [Class::None; 2];
        if size > 16 || !self.classify(of, 0, &mut classes, 0)? {
            return Ok(None);
        }
        let mut integers = [registers.rax, registers.rdx].into_iter();
        let mut floats = [registers.xmm0, registers.xmm1].into_iter();
        let mut bytes = Vec::new();
        for class in classes {
            let word = match class {
                Class::Float => floats.next(),
                Class::Integer => integers.next(),
                Class::None => Some(0),
            };
            bytes.extend(word.unwrap_or(0).to_le_bytes());
        }
        bytes.truncate(size as usize);
        Ok(Some(Value::made(of.clone(), &bytes)))
    }

    /// Adds what lies at an offset; whether it is returned in these registers.
    fn classify(
        &mut self,
        of: &Type,
        offset: u64,
        classes: &mut [Class; 2],
        depth: usize,
    ) -> Result<bool, NoPlace> {
        if depth > DEEPEST {
            return Ok(false);
        }
        let stripped = self.catalog.strip(of)?;
        let size = self.catalog.size(&stripped)?.unwrap_or(0);
        let class = match &stripped {
            Type::Base(base) if base.kind == BaseKind::Float => match base.size {
                4 | 8 => Class::Float,
                // `long double` comes back on the floating point stack.
                _ => return Ok(false),
            },
            Type::Base(_) | Type::Enum(_) | Type::Pointer { .. } | Type::Reference(_) => {
                Class::Integer
            }
            Type::Array { of, count } => {
                let each = self.catalog.size(of)?.unwrap_or(0);
                for n in 0..count.unwrap_or(0).min(MOST) {
                    if !self.classify(of, offset + n * each, classes, depth + 1)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            Type::Record(record) => {
                let variants = record.variants.iter().flat_map(|variants| {
                    let all = variants.variants.iter().map(|variant| &variant.member);
                    all.chain(&variants.tag)
                });
                for member in record.members.iter().chain(variants) {
                    let crate::types::Offset::Bytes(at) = member.offset else {
                        return Ok(false);
                    };
                    if !self.classify(&member.of, offset + at, classes, depth + 1)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            _ => return Ok(size == 0),
        };
        for byte in [offset, offset + size.max(1) - 1] {
            let Some(known) = classes.get_mut((byte / 8) as usize) else {
                return Ok(false);
            };
            // An integer beside a float is kept in a general register.
            if *known != Class::Integer {
                *known = class;
            }
        }
        Ok(true)
    }
}
