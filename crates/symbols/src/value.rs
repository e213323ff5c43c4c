//! Values of a program: a type and a place in; bytes, numbers, members, elements and text out.

use crate::location::{Locator, NoPlace};
use crate::types::{Base, BaseKind, Bits, Entry, Member, Offset, Type};
use crate::variables::Catalog;
use crate::{Frame, Modules, Registers};
use std::ops::Range;
use std::sync::Arc;

mod containers;
mod items;
mod number;
mod returned;
mod show;
mod tree;

pub use containers::Container;
pub use items::{Item, Walk};
pub use number::{Number, float_text};
pub use returned::ReturnRegisters;
pub use tree::{Part, PartKind, Within};

/// The program at a moment, in the thread that is looked at.
pub trait Context {
    /// Reads what can be read from there on; how many bytes that is.
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize;

    /// Those of the innermost frame.
    fn registers(&mut self) -> Registers;

    /// The base of FS, where the thread's own variables are.
    fn thread_pointer(&mut self) -> Option<u64>;

    /// Calls a function of the program, in a copy of it that is thrown away. At most six arguments.
    fn call(&mut self, function: u64, arguments: &[u64]) -> Result<Returned, String>;

    /// Puts bytes into the memory of that copy, for an argument to point to.
    fn place(&mut self, bytes: &[u8]) -> Result<u64, String>;
}

/// What a call came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    pub rax: u64,
    /// The lower half of xmm0, if it is known.
    pub xmm0: Option<u64>,
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    Memory(u64),
    /// Nowhere: a result, a register's contents, something put together.
    Bytes {
        bytes: Arc<[u8]>,
        /// Parts that were optimised away.
        missing: Arc<[Range<usize>]>,
    },
    /// A pointer that was optimised away, though what it points at is known.
    Synthetic {
        entry: Entry,
        bias: u64,
        offset: i64,
        frame: Option<usize>,
    },
    /// Optimised away.
    Gone,
}

#[derive(Clone, Debug)]
pub struct Value {
    pub of: Type,
    pub place: Place,
    /// Only these bits of the place.
    pub bits: Option<Bits>,
}

impl Value {
    pub fn new(of: Type, place: Place) -> Value {
        Value {
            of,
            place,
            bits: None,
        }
    }

    /// One that is nowhere.
    pub fn made(of: Type, bytes: &[u8]) -> Value {
        Value::new(
            of,
            Place::Bytes {
                bytes: bytes.into(),
                missing: Arc::new([]),
            },
        )
    }

    pub fn pointer(to: Type, address: u64) -> Value {
        Value::made(to.pointer(), &address.to_le_bytes())
    }

    pub fn int(value: i32) -> Value {
        Value::made(Type::int(), &value.to_le_bytes())
    }
}

/// Looks at values of the program at a moment.
pub struct View<'a> {
    pub catalog: &'a Catalog,
    pub modules: &'a Modules,
    pub context: &'a mut dyn Context,
    /// The stack, innermost frame first, as far as it has been asked for.
    pub frames: Vec<Frame>,
}

/// Larger values aren't read whole.
const LARGEST: u64 = 1 << 24;

impl View<'_> {
    pub fn locator(&mut self, frame: Option<usize>) -> Locator<'_> {
        Locator {
            catalog: self.catalog,
            modules: self.modules,
            frames: &self.frames,
            frame,
            context: self.context,
            depth: 0,
        }
    }

    pub fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>, NoPlace> {
        let mut bytes = vec![0; len];
        let got = self.context.read(address, &mut bytes);
        if got < len {
            return Err(NoPlace::Unreadable(address.wrapping_add(got as u64)));
        }
        Ok(bytes)
    }

    /// The first `len` bytes of a value.
    pub fn bytes(&mut self, value: &Value, len: u64) -> Result<Vec<u8>, NoPlace> {
        if len > LARGEST {
            return Err(NoPlace::Unknown(format!(
                "{len} bytes are too many to read"
            )));
        }
        let len = len as usize;
        match &value.place {
            Place::Memory(address) => self.read(*address, len),
            Place::Bytes { bytes, missing } => {
                if missing.iter().any(|part| part.start < len) {
                    return Err(NoPlace::Gone);
                }
                let mut bytes = bytes.to_vec();
                bytes.resize(len, 0);
                Ok(bytes)
            }
            Place::Synthetic { .. } => Err(NoPlace::Unknown(
                "the pointer was optimised out; what it points at is still known".into(),
            )),
            Place::Gone => Err(NoPlace::Gone),
        }
    }

    /// The value of an integer, enumeration, float, pointer; of an array or function, its address.
    pub fn number(&mut self, value: &Value) -> Result<Option<Number>, NoPlace> {
        let of = self.catalog.strip(&value.of)?;
        let base = match &of {
            Type::Base(base) => base.clone(),
            Type::Enum(of) => of.base.clone(),
            Type::Pointer { .. } => address_base(),
            Type::Reference(to) => {
                // There are no references to references, except in a damaged file.
                if let Type::Reference(_) = self.catalog.strip(to)? {
                    return Ok(None);
                }
                let target = self.deref(value)?;
                return self.number(&target);
            }
            Type::Array { .. } | Type::Function(_) => {
                return match value.place {
                    Place::Memory(address) => Ok(Some(Number::address(address))),
                    _ => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        let number = match value.bits {
            None => {
                let bytes = self.bytes(value, base.size.into())?;
                Number::from_bytes(&bytes, base)
            }
            Some(bits) => {
                let len = (bits.from + bits.size).div_ceil(8);
                let mut whole = [0; 16];
                let bytes = self.bytes(value, len.min(16).into())?;
                whole[..bytes.len()].copy_from_slice(&bytes);
                let raw = u128::from_le_bytes(whole) >> bits.from;
                Number::from_bits(raw, bits.size, base)
            }
        };
        number
            .map(Some)
            .ok_or_else(|| NoPlace::Unknown("numbers of this kind can't be read".into()))
    }

    /// What a pointer or reference points at, or an array's first element.
    pub fn deref(&mut self, value: &Value) -> Result<Value, NoPlace> {
        match self.catalog.strip(&value.of)? {
            Type::Pointer { to, .. } | Type::Reference(to) => {
                let to = (*to).clone();
                if let Place::Synthetic {
                    entry,
                    bias,
                    offset,
                    frame,
                } = &value.place
                {
                    return self.behind_synthetic(to, entry, *bias, *offset, *frame);
                }
                let bytes = self.bytes(value, 8)?;
                let address = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                Ok(Value::new(to, Place::Memory(address)))
            }
            Type::Array { .. } => self.element(value, 0),
            // A function's value is a pointer to itself.
            Type::Function(_) => Ok(value.clone()),
            _ => Err(NoPlace::Unknown("it is no pointer".into())),
        }
    }

    fn behind_synthetic(
        &mut self,
        to: Type,
        entry: &Entry,
        bias: u64,
        offset: i64,
        frame: Option<usize>,
    ) -> Result<Value, NoPlace> {
        let whole = entry.type_of()?;
        let size = self.catalog.size(&whole)?;
        let place = self.locator(frame).variable(entry, bias, size)?;
        let offset = u64::try_from(offset).map_err(|_| NoPlace::Gone)?;
        let place = self.shifted(&place, offset)?;
        Ok(Value::new(to, place))
    }

    /// The place so many bytes further.
    fn shifted(&self, place: &Place, by: u64) -> Result<Place, NoPlace> {
        Ok(match place {
            Place::Memory(address) => Place::Memory(address.wrapping_add(by)),
            Place::Bytes { bytes, missing } => {
                let by = usize::try_from(by).unwrap_or(usize::MAX);
                let Some(rest) = bytes.get(by..) else {
                    return Err(NoPlace::Unknown("it lies outside of what is known".into()));
                };
                let missing: Vec<Range<usize>> = missing
                    .iter()
                    .filter(|part| part.end > by)
                    .map(|part| part.start.saturating_sub(by)..part.end - by)
                    .collect();
                Place::Bytes {
                    bytes: rest.into(),
                    missing: missing.into(),
                }
            }
            Place::Synthetic { .. } | Place::Gone => return Err(NoPlace::Gone),
        })
    }

    /// Element `index` of an array, or of the array that a pointer points into.
    pub fn element(&mut self, value: &Value, index: i64) -> Result<Value, NoPlace> {
        let (of, place) = match self.catalog.strip(&value.of)? {
            Type::Array { of, .. } => ((*of).clone(), value.place.clone()),
            Type::Pointer { .. } => {
                let first = self.deref(value)?;
                (first.of, first.place)
            }
            _ => return Err(NoPlace::Unknown("it is neither array nor pointer".into())),
        };
        let size = self.catalog.size(&of)?;
        let Some(size) = size else {
            return Err(NoPlace::Unknown(
                "the size of its elements isn't known".into(),
            ));
        };
        let by = (index as u64).wrapping_mul(size);
        let place = self.shifted(&place, by)?;
        Ok(Value::new(of, place))
    }

    /// A member of a record's value.
    pub fn member(&mut self, value: &Value, member: &Member, bias: u64) -> Result<Value, NoPlace> {
        let place = match &member.offset {
            Offset::Bytes(offset) => self.shifted(&value.place, *offset)?,
            Offset::Computed(entry) => {
                let Place::Memory(object) = value.place else {
                    return Err(NoPlace::Gone);
                };
                Place::Memory(self.locator(None).computed(entry, bias, object)?)
            }
        };
        Ok(Value {
            of: member.of.clone(),
            place,
            bits: member.bits,
        })
    }
}

/// What addresses are as numbers.
pub fn address_base() -> Base {
    Base {
        name: "unsigned long".into(),
        size: 8,
        kind: BaseKind::Unsigned,
    }
}

/// A linker's name as people write it.
pub fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z")
        && name.len() < 8192
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = symbol.demangle(&cpp_demangle::DemangleOptions::new().recursion_limit(96))
    {
        return text;
    }
    name.into()
}
