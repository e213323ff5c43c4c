//! What debugging information says about an address of a program for x86-64 Linux.
//!
//! ELF files and DWARF come in (from the program, a separate debug file, a shared dwz file);
//! lines, functions, inlined calls and stacks come out.
#![deny(unsafe_code)]

mod bytes;
mod elf;
mod error;
mod frame;
mod lines;
mod module;
mod modules;
mod registers;
mod search;

pub use bytes::Bytes;
pub use error::Error;
pub use frame::{Frame, Stack, StackEnd};
pub use gimli;
pub use lines::Line;
pub use module::{Die, Module, Reader, Unit};
pub use modules::{Image, Mapping, Modules};
pub use registers::Registers;
pub use search::DebugSearch;
