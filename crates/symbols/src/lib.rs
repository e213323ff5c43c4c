//! What debugging information says about an address of a program for x86-64 Linux.
//!
//! ELF files and DWARF come in (from the program, a separate debug file, a shared dwz file);
//! lines, functions, inlined calls and stacks come out.
#![deny(unsafe_code)]

mod bytes;
mod demangle;
mod elf;
mod error;
pub mod expr;
mod frame;
mod functions;
mod intervals;
mod lines;
pub mod location;
mod module;
mod modules;
mod names;
mod plt;
mod registers;
mod search;
mod stack;
mod symtab;
pub mod types;
mod unwind;
pub mod value;
pub mod variables;

pub use bytes::Bytes;
pub use demangle::{demangle, means};
pub use error::Error;
pub use frame::{Frame, Stack, StackEnd};
pub use functions::Function;
pub use gimli;
pub use lines::{Line, LineAddress};
pub use module::{Die, Module, Reader, Unit};
pub use modules::{Image, Mapping, Modules};
pub use names::NameKind;
pub use registers::Registers;
pub use search::DebugSearch;
pub use stack::Place;
pub use symtab::{Symbol, SymbolKind};
pub use unwind::{Memory, RawFrame};
