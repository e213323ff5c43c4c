//! What debugging information says about an address of a program for x86-64 Linux.
//!
//! It knows no recordings, and trusts nothing in a file, since that may be a stranger's.
//!
//! ELF files and DWARF (versions 4 and 5) come in, from the program itself, from its separate
//! debug file (`.gnu_debuglink` or build id), from the file that dwz shares between several, or
//! from split DWARF's `.dwo` and `.dwp` files; lines, functions, inlined calls, variables, types,
//! values and stacks come out.
//!
//! - [`Module`] is one file. It is opened in well under a millisecond; what is asked for is read
//!   when it is first asked for, unit by unit. Its addresses are those of the file.
//! - [`Modules`] is what a process has mapped at a moment; its addresses are the process's. It
//!   unwinds stacks without frame pointers.
//! - [`Frame`] is a call in progress, with the registers as they were in it, so that its variables
//!   can be found.
//!
//! Files are mapped, and nothing in them is trusted: a damaged file gives an error or fewer
//! answers, never a panic, an endless loop or memory without bound.
//!
//! ```
//! use clew_symbols::{DebugSearch, Module};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = std::env::current_exe()?;
//! let module = Module::open(&path, &path, &DebugSearch::default())?;
//! for function in module.functions_named("main")? {
//!     // The innermost inlined call first, the function that was really called last.
//!     for place in module.places_at(function.entry)? {
//!         println!("{:#x} {:?} {:?}", function.entry, place.function, place.line);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The stack of a stopped thread, from its registers and whatever can read its memory:
//!
//! ```no_run
//! use clew_symbols::{DebugSearch, Error, Mapping, Module, Modules, Registers};
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! fn show(gprs: [u64; 16], rip: u64, mut read: impl FnMut(u64, &mut [u8]) -> usize) -> Result<(), Error> {
//!     let path = Path::new("/usr/bin/ls");
//!     let module = Arc::new(Module::open(path, path, &DebugSearch::default())?);
//!     let mut modules = Modules::new();
//!     // A line of /proc/PID/maps: where a part of the file lies.
//!     modules.map(&module, &Mapping { range: 0x5555_5555_8000..0x5555_5556_c000, offset: 0x4000 });
//!     let stack = modules.stack(&Registers::from_encoding_order(gprs, rip), &mut read);
//!     print!("{stack}");
//!     Ok(())
//! }
//! ```
#![deny(unsafe_code)]

pub mod agent;
mod bytes;
mod demangle;
mod elf;
mod error;
pub mod expr;
mod extent;
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
mod xz;

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
pub use unwind::{Memory, RawFrame, Saved};
