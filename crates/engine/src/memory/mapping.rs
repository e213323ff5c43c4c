//! One mapping of the guest, as the guest sees it.
//!
//! The real mapping behind it differs in its protection only: it is never executable, and pages
//! with translated code are kept from being written (see [`super::code`]).

pub use clew_recording::maps::OnFork;

use super::file::FileIdentity;

pub const PAGE: u64 = 4096;

/// Rounds up to a page; `None` if that is past the end of the number range.
pub fn page_up(n: u64) -> Option<u64> {
    n.checked_add(PAGE - 1).map(page_down)
}

pub const fn page_down(n: u64) -> u64 {
    n & !(PAGE - 1)
}

/// What a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    Anon,
    /// Below the program break.
    Heap,
    /// The main thread's stack. Its range is all that it may grow to.
    Stack,
    Vdso,
    /// A System V segment.
    Shm,
    File {
        file: FileIdentity,
        /// File offset of the mapping's first byte.
        offset: u64,
        /// Where the image that this is a part of begins (`None`: not part of an image).
        image: Option<u64>,
    },
}

/// A range of guest addresses with equal properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Protection as the guest asked for it: `PROT_READ | PROT_WRITE | PROT_EXEC`.
    pub prot: i32,
    pub shared: bool,
    pub grows_down: bool,
    pub no_reserve: bool,
    /// A private file mapping that was writable at some time: its bytes may differ from the file's.
    pub was_writable: bool,
    pub on_fork: OnFork,
    pub backing: Backing,
}

impl Mapping {
    /// A private anonymous mapping.
    pub fn anon(start: u64, end: u64, prot: i32) -> Mapping {
        Mapping {
            start,
            end,
            prot,
            shared: false,
            grows_down: false,
            no_reserve: false,
            was_writable: false,
            on_fork: OnFork::default(),
            backing: Backing::Anon,
        }
    }

    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub fn can(&self, prot: i32) -> bool {
        self.prot & prot == prot
    }

    pub fn executable(&self) -> bool {
        self.can(libc::PROT_EXEC)
    }

    /// Code that can't change: private pages of a file that were never writable, or the vdso.
    pub fn immutable(&self) -> bool {
        match self.backing {
            Backing::File { .. } => !self.shared && !self.was_writable,
            Backing::Vdso => true,
            _ => false,
        }
    }

    /// Where the image begins that this is a part of.
    pub fn image_base(&self) -> Option<u64> {
        match self.backing {
            Backing::File { image, .. } => image,
            _ => None,
        }
    }

    /// Sets the guest's protection and remembers that the bytes may now change.
    pub fn set_prot(&mut self, prot: i32) {
        self.prot = prot;
        let file = matches!(self.backing, Backing::File { .. } | Backing::Vdso);
        self.was_writable |= file && !self.shared && prot & libc::PROT_WRITE != 0;
    }

    /// The part of this mapping inside `start..end`, which must overlap it.
    pub(super) fn slice(&self, start: u64, end: u64) -> Mapping {
        let mut part = *self;
        part.start = start.max(self.start);
        part.end = end.min(self.end);
        if let Backing::File { offset, .. } = &mut part.backing {
            *offset = offset.wrapping_add(part.start - self.start);
        }
        part
    }

    /// The same mapping at another address.
    pub(super) fn moved_to(&self, start: u64, len: u64) -> Mapping {
        let mut moved = *self;
        moved.start = start;
        moved.end = start + len;
        if let Backing::File { image, .. } = &mut moved.backing {
            *image = None;
        }
        if moved.backing == Backing::Heap {
            moved.backing = Backing::Anon;
        }
        moved
    }

    /// Is `next` what this mapping would be if it went on?
    pub(super) fn continues_with(&self, next: &Mapping) -> bool {
        if self.end != next.start {
            return false;
        }
        let mut expected = *self;
        expected.start = next.start;
        expected.end = next.end;
        if let Backing::File { offset, .. } = &mut expected.backing {
            *offset = offset.wrapping_add(self.len());
        }
        expected == *next
    }
}
