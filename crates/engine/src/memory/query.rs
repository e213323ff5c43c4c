//! Questions about guest memory.

use std::ops::Range;

use super::file::FileIdentity;
use super::mapping::{Backing, Mapping, PAGE, page_down};
use super::{Memory, govern, host};
use crate::guest::access;
use crate::layout;
use crate::vdso;

/// What an instruction fetch at some address finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// SEGV_MAPERR.
    Unmapped,
    /// SEGV_ACCERR.
    NotExecutable,
    Executable(Code),
}

/// Executable memory around an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The mapping's addresses; code of another mapping may follow directly.
    pub range: Range<u64>,
    /// Bytes can't change as long as the mapping isn't changed.
    pub immutable: bool,
    /// Others may write the bytes without any fault here: compare before use.
    pub shared: bool,
    /// The image it is a part of, if it is one.
    pub image: Option<ImageAt>,
}

/// An image in guest memory. An offset from `base` means the same code in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageAt {
    pub file: FileIdentity,
    /// Where the image begins.
    pub base: u64,
    /// Add this to an address in the fetched range to get its file offset.
    pub to_offset: u64,
}

impl Memory {
    /// The guest mapping that holds `addr`.
    pub fn find(&self, addr: u64) -> Option<&Mapping> {
        self.map.get(addr)
    }

    /// All guest mappings by address.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mapping> {
        self.map.iter()
    }

    /// May the guest read at `addr`? (On x86, what is writable is readable.)
    pub fn readable(&self, addr: u64) -> bool {
        self.map
            .get(addr)
            .is_some_and(|m| m.prot != libc::PROT_NONE)
    }

    pub fn writable(&self, addr: u64) -> bool {
        self.map.get(addr).is_some_and(|m| m.can(libc::PROT_WRITE))
    }

    /// What the guest finds when it executes at `pc`.
    pub fn fetch(&self, pc: u64) -> Fetch {
        if let Some(range) = &self.module {
            if !range.contains(&pc) {
                return Fetch::Unmapped;
            }
            return Fetch::Executable(Code {
                range: range.clone(),
                immutable: true,
                shared: false,
                image: None,
            });
        }
        let Some(m) = self.map.get(pc) else {
            return Fetch::Unmapped;
        };
        if !m.executable() {
            return Fetch::NotExecutable;
        }
        let image = match m.backing {
            Backing::File {
                file,
                offset,
                image: Some(base),
            } => Some(ImageAt {
                file,
                base,
                to_offset: offset.wrapping_sub(m.start),
            }),
            // The same bytes at the same place in every process of this engine: as good as a file.
            Backing::Vdso if m.start == layout::VDSO && !m.was_writable => Some(ImageAt {
                file: FileIdentity {
                    dev: 0,
                    ino: 0,
                    size: vdso::SIZE_AND_TIME.0,
                    mtime_ns: vdso::SIZE_AND_TIME.1,
                },
                base: m.start,
                to_offset: m.start.wrapping_neg(),
            }),
            _ => None,
        };
        let immutable = m.immutable();
        Fetch::Executable(Code {
            range: m.start..m.end,
            immutable,
            shared: m.shared,
            image,
        })
    }

    /// In a replay: the path that the guest knew a mapped file by (empty if unknown), and the name of its
    /// copy in the recording.
    pub fn file_names(&self, file: &FileIdentity) -> (&[u8], Option<&str>) {
        let path = self.originals.path(file).unwrap_or(b"");
        (path, self.originals.copy(file))
    }

    /// The lowest address of the main stack that can be accessed in a replay.
    pub fn stack_floor(&self) -> u64 {
        self.stack_floor
    }

    /// Reads guest memory for somebody who looks from outside: also pages that the guest itself can't read,
    /// or that are closed. All bytes are on one page; false if there are none.
    pub fn show(&self, addr: u64, into: &mut [u8]) -> bool {
        if access::read_bytes(addr, into).is_ok() {
            return true;
        }
        let page = page_down(addr);
        let Some(m) = self.map.get(addr) else {
            return false;
        };
        if host::mprotect(page..page + PAGE, libc::PROT_READ).is_err() {
            return false;
        }
        let read = access::read_bytes(addr, into).is_ok();
        let writes = !self.is_code_protected(addr) as i32 * libc::PROT_WRITE;
        let prot = host::real_prot(m.prot) & (libc::PROT_READ | writes);
        let _ = host::mprotect(page..page + PAGE, prot);
        govern::close_again(page..page + PAGE);
        read
    }

    /// The path that the host shows for the file mapped at `addr`. Reads `/proc`.
    pub fn path(&self, addr: u64) -> Option<std::path::PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let text = super::host::maps().ok()?;
        let lines = text
            .split(|&b| b == b'\n')
            .filter_map(super::host::parse_line);
        let line = lines.into_iter().find(|l| l.range.contains(&addr))?;
        line.name
            .starts_with(b"/")
            .then(|| std::ffi::OsString::from_vec(line.name.to_vec()).into())
    }
}
