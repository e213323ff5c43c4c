//! Guest memory as the translator sees it: what it may read ahead, and which code belongs together.

use std::cell::Cell;

use crate::guest::access;
use crate::memory::{Fetch as Fetched, Memory};
use crate::translate::{self, Fetch};

/// An executable mapping.
#[derive(Clone, Copy, Default, PartialEq)]
struct Mapped {
    start: u64,
    end: u64,
    immutable: bool,
    shared: bool,
}
/// No instruction has more bytes.
const LONGEST: u64 = 15;

/// Guest memory as the translator sees it.
pub(crate) struct View<'a> {
    memory: &'a Memory,
    /// An instruction may reach out of code that can't change.
    across: bool,
    /// The last mapping asked about: nearly every question is about the same one.
    last: Cell<Mapped>,
    /// The last page found readable.
    read: Cell<u64>,
}

impl<'a> View<'a> {
    pub(crate) fn of(memory: &'a Memory) -> View<'a> {
        View {
            memory,
            across: false,
            last: Cell::default(),
            read: Cell::new(1),
        }
    }

    /// For what may be made of several mappings: all of it is looked at again when one of them changes.
    pub(super) fn across(memory: &'a Memory) -> View<'a> {
        View {
            across: true,
            ..View::of(memory)
        }
    }

    /// The executable mapping at `pc`.
    fn mapping(&self, pc: u64) -> Option<Mapped> {
        let last = self.last.get();
        if last.start <= pc && pc < last.end {
            return Some(last);
        }
        match self.memory.fetch(pc) {
            Fetched::Executable(code) => {
                let found = Mapped {
                    start: code.range.start,
                    end: code.range.end,
                    immutable: code.immutable,
                    shared: code.shared,
                };
                self.last.set(found);
                Some(found)
            }
            _ => None,
        }
    }

    /// Can the page be read? A file may have become shorter than its mapping.
    pub(super) fn is_readable(&self, pc: u64) -> bool {
        let page = pc & !0xfff;
        if self.read.get() != page {
            if access::read::<u8>(page).is_err() {
                return false;
            }
            self.read.set(page);
        }
        true
    }
}

impl Fetch for View<'_> {
    fn code_end(&self, pc: u64) -> Option<u64> {
        let Mapped {
            mut end, immutable, ..
        } = self.mapping(pc)?;
        if !self.is_readable(pc) {
            return None;
        }
        // Code that may change is one body: an instruction may reach into the next mapping.
        if (self.across || !immutable)
            && pc + LONGEST > end
            && let Some(further) = self.mapping(end)
        {
            end = further.end;
        }
        // Up to the end of the page is certain; an instruction may need the next one.
        let next = page_after(pc);
        Some(
            if next < end && pc + LONGEST > next && !self.is_readable(next) {
                next
            } else {
                end
            },
        )
    }

    fn same_body(&self, a: u64, b: u64) -> bool {
        let body = |pc| self.mapping(pc).filter(|mapped| mapped.immutable);
        body(a) == body(b)
    }

    fn shared(&self, pc: u64) -> bool {
        let mapped = self.mapping(pc);
        mapped.is_some_and(|mapped| mapped.shared && !mapped.immutable)
    }
}

/// Whether the instruction at `pc` is code that can't change: all of it. The last one of a file's pages may end on one that
/// the program has patched.
pub(super) fn is_immutable(memory: &Memory, pc: u64) -> bool {
    matches!(memory.fetch(pc), Fetched::Executable(code) if code.immutable && !reaches_out(memory, pc, code.range.end))
}

pub(super) fn reaches_out(memory: &Memory, pc: u64, end: u64) -> bool {
    pc + LONGEST > end
        && matches!(memory.fetch(end), Fetched::Executable(_))
        && translate::decode(&View::of(memory), pc).is_none()
}

pub(super) fn page_after(pc: u64) -> u64 {
    (pc | 0xfff) + 1
}
