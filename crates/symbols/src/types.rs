//! Types of a program: what an entry of its debugging information says comes in, what a value
//! of that type looks like comes out. Each level is read when it is needed, so that types that
//! contain themselves are no trouble.

use crate::{Die, Module};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

mod name;
mod read;

pub use read::Language;
pub(crate) use read::constant;

/// An entry of one module's debugging information.
#[derive(Clone)]
pub struct Entry {
    pub module: Arc<Module>,
    pub die: Die,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        Arc::ptr_eq(&self.module, &other.module) && self.die == other.die
    }
}

impl Eq for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.module).hash(state);
        self.die.hash(state);
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.module.name().display();
        write!(f, "{name}:{}:{:#x}", self.die.unit, self.die.offset.0)
    }
}

/// A type, as far as it has been looked at.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    Void,
    Base(Base),
    Pointer {
        to: Arc<Type>,
        /// Rust names its pointers (`&str`).
        name: Option<Arc<str>>,
    },
    Reference(Arc<Type>),
    Array {
        of: Arc<Type>,
        /// `None` if only the running program knows, or nobody.
        count: Option<u64>,
    },
    Record(Arc<Record>),
    Enum(Arc<Enum>),
    Function(Arc<Function>),
    /// A typedef.
    Named {
        name: Arc<str>,
        of: Arc<Type>,
    },
    Qualified {
        word: &'static str,
        of: Arc<Type>,
    },
    /// What C expressions can do nothing with: pointers to members, complex numbers and the like.
    Other {
        name: Arc<str>,
        size: u64,
    },
    /// Not looked at yet.
    Entry(Entry),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    pub name: Arc<str>,
    pub size: u8,
    pub kind: BaseKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseKind {
    Signed,
    Unsigned,
    /// One byte that is shown as a character, too.
    SignedChar,
    UnsignedChar,
    /// `char16_t`, `char32_t`, Rust's `char`.
    Unicode,
    Bool,
    Float,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    Struct,
    Class,
    Union,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub kind: RecordKind,
    /// With its namespaces; none for those without a name.
    pub name: Option<Arc<str>>,
    pub language: Language,
    pub size: u64,
    /// Only declared: what is in it isn't known.
    pub incomplete: bool,
    /// In order; base classes first.
    pub members: Vec<Member>,
    /// Rust's enums: which of these members is there, depending on another.
    pub variants: Option<Variants>,
    pub entry: Entry,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// None for anonymous structs and unions, whose members count as the outer's.
    pub name: Option<Arc<str>>,
    pub of: Type,
    pub offset: Offset,
    pub bits: Option<Bits>,
    /// A base class.
    pub base: bool,
    /// Made by the compiler, such as `_vptr`.
    pub artificial: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Offset {
    Bytes(u64),
    /// The location expression of this entry tells (virtual base classes).
    Computed(Entry),
}

/// Bits of an integer, from the least significant one of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    pub from: u32,
    pub size: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Variants {
    /// The member that tells; none if there is only one variant.
    pub tag: Option<Member>,
    pub variants: Vec<Variant>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// `None`: whatever the others haven't got.
    pub tag: Option<u128>,
    pub member: Member,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Enum {
    pub name: Option<Arc<str>>,
    pub language: Language,
    pub base: Base,
    pub values: Vec<(Arc<str>, i128)>,
    /// C++'s `enum class`.
    pub scoped: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub returns: Type,
    pub parameters: Vec<Type>,
    pub variadic: bool,
    /// Declared without parameters, the old way: they aren't known.
    pub open: bool,
}

impl Type {
    pub fn base(name: &str, size: u8, kind: BaseKind) -> Type {
        Type::Base(Base {
            name: name.into(),
            size,
            kind,
        })
    }

    pub fn int() -> Type {
        Type::base("int", 4, BaseKind::Signed)
    }

    pub fn long() -> Type {
        Type::base("long", 8, BaseKind::Signed)
    }

    pub fn unsigned_long() -> Type {
        Type::base("unsigned long", 8, BaseKind::Unsigned)
    }

    pub fn char() -> Type {
        Type::base("char", 1, BaseKind::SignedChar)
    }

    pub fn pointer(self) -> Type {
        Type::Pointer {
            to: Arc::new(self),
            name: None,
        }
    }
}

impl BaseKind {
    pub fn signed(self) -> bool {
        matches!(self, BaseKind::Signed | BaseKind::SignedChar)
    }
}
