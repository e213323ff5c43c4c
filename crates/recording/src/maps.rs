//! Changes of mappings, as effects of an event.
//!
//! In: what the recorder's map of guest memory did. Out: bytes of an [`Effect::Map`], and from bytes
//! of strangers the same [`Change`] again. What only the replaying engine can judge (may the guest
//! have this address?) is judged there; here every field has a form that makes sense.
//!
//! [`Effect::Map`]: crate::event::Effect::Map

use crate::bytes::{LONGEST, Malformed, Reader, Writer};

/// No name of a file copy is longer.
pub const LONGEST_NAME: usize = 120;
/// No path is kept longer than this.
pub const LONGEST_PATH: usize = 4096;
/// No change is longer, encoded.
pub const LONGEST_CHANGE: usize = 16 * LONGEST + LONGEST_NAME + LONGEST_PATH;

const PAGE: u64 = 4096;

/// Page-aligned addresses, not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    pub start: u64,
    pub end: u64,
}

impl Pages {
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Which file the guest believes it has mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub mtime_ns: i64,
}

/// What a mapping is in the guest's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    Anon,
    Heap,
    Stack,
    Vdso,
    Shm,
    File {
        file: FileId,
        offset: u64,
        /// Where the image that this is a part of begins.
        image: Option<u64>,
    },
}

/// A mapping with all that replay must know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub pages: Pages,
    /// Read, write, execute: the low three bits as in `PROT_*`.
    pub prot: u8,
    pub shared: bool,
    pub grows_down: bool,
    pub no_reserve: bool,
    pub was_writable: bool,
    pub backing: Backing,
}

/// Memory that can be mapped at several places at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// Made by a shared anonymous mapping; counted.
    Anon(u64),
    /// A System V segment.
    Segment(u64),
    File {
        dev: u64,
        ino: u64,
    },
}

/// Where a mapping's first contents come from. What differs follows as memory effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Zero,
    /// A file kept with the recording.
    Copy {
        name: String,
        offset: u64,
    },
    /// Contents are in the effects; as a file of so many bytes, mapped from `offset`, would: what
    /// lies behind its end can't be accessed.
    Logged {
        offset: u64,
        size: u64,
    },
    /// Shared memory. It begins with zeroes, or with a file kept with the recording.
    Object {
        object: Object,
        offset: u64,
        size: u64,
        copy: Option<String>,
    },
}

/// What is thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Private changes: pages are what they were when mapped.
    Private,
    /// The shared memory itself becomes zero.
    Shared,
}

/// What a forked child finds: a copy, unless one of these is set. Programs set and clear each by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnFork {
    /// Zeroes (MADV_WIPEONFORK).
    pub wiped: bool,
    /// Nothing (MADV_DONTFORK), whatever else is set.
    pub dropped: bool,
}

/// One change of the guest's mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new mapping, in place of whatever was there.
    Map {
        mapping: Mapping,
        source: Source,
        /// The file's path, for people; empty if there is none.
        path: Vec<u8>,
    },
    /// An image's segments will be mapped here.
    Image {
        file: FileId,
        pages: Pages,
    },
    Unmap(Pages),
    /// All of it is mapped.
    Protect {
        pages: Pages,
        prot: u8,
    },
    /// mremap that grew in place (`new` is `old`) or moved.
    Move {
        old: u64,
        old_len: u64,
        new: u64,
        new_len: u64,
        /// The old range stays mapped, emptied if it is private.
        keep: bool,
    },
    Discard {
        pages: Pages,
        kind: Discard,
    },
    /// What will be of it in a forked child; the child's own changes tell what became of it.
    OnFork {
        pages: Pages,
        what: OnFork,
    },
    /// The program break is now here.
    Break(u64),
    /// The main stack can be accessed from here up to its end.
    Stack(u64),
    /// The size of shared memory changed, and with it what of its mappings can be accessed.
    Resize {
        object: Object,
        size: u64,
    },
    /// Shared memory that belongs to another process from here on: touching it is an event.
    Close(Pages),
    /// It belongs to this process.
    Open(Pages),
}

mod kind {
    pub const MAP: u8 = 1;
    pub const IMAGE: u8 = 2;
    pub const UNMAP: u8 = 3;
    pub const PROTECT: u8 = 4;
    pub const MOVE: u8 = 5;
    pub const DISCARD: u8 = 6;
    pub const BREAK: u8 = 7;
    pub const STACK: u8 = 8;
    pub const RESIZE: u8 = 9;
    pub const ON_FORK: u8 = 10;
    pub const CLOSE: u8 = 11;
    pub const OPEN: u8 = 12;
}

impl Change {
    /// Puts the change at the end of `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + LONGEST_CHANGE, 0);
        let mut to = Writer::new(&mut out[start..]);
        self.put(&mut to);
        let len = to.len();
        out.truncate(start + len);
    }

    fn put(&self, out: &mut Writer) {
        match self {
            Change::Map {
                mapping,
                source,
                path,
            } => {
                out.byte(kind::MAP);
                put_mapping(mapping, out);
                put_source(source, out);
                out.string(&path[..path.len().min(LONGEST_PATH)]);
            }
            Change::Image { file, pages } => {
                out.byte(kind::IMAGE);
                put_file(file, out);
                put_pages(pages, out);
            }
            Change::Unmap(pages) => {
                out.byte(kind::UNMAP);
                put_pages(pages, out);
            }
            Change::Protect { pages, prot } => {
                out.byte(kind::PROTECT);
                put_pages(pages, out);
                out.byte(*prot);
            }
            Change::Move {
                old,
                old_len,
                new,
                new_len,
                keep,
            } => {
                out.byte(kind::MOVE);
                for value in [old, old_len, new, new_len] {
                    out.number(value / PAGE);
                }
                out.byte(*keep as u8);
            }
            Change::Discard { pages, kind } => {
                out.byte(kind::DISCARD);
                put_pages(pages, out);
                out.byte(matches!(kind, Discard::Shared) as u8);
            }
            Change::OnFork { pages, what } => {
                out.byte(kind::ON_FORK);
                put_pages(pages, out);
                out.byte(u8::from(what.wiped) | u8::from(what.dropped) << 1);
            }
            Change::Break(addr) => {
                out.byte(kind::BREAK);
                out.number(*addr);
            }
            Change::Stack(addr) => {
                out.byte(kind::STACK);
                out.number(*addr / PAGE);
            }
            Change::Resize { object, size } => {
                out.byte(kind::RESIZE);
                put_object(object, out);
                out.number(*size);
            }
            Change::Close(pages) => {
                out.byte(kind::CLOSE);
                put_pages(pages, out);
            }
            Change::Open(pages) => {
                out.byte(kind::OPEN);
                put_pages(pages, out);
            }
        }
    }

    /// Reads what [`Change::encode`] wrote, and nothing behind it.
    pub fn decode(bytes: &[u8]) -> Result<Change, Malformed> {
        let mut input = Reader::new(bytes);
        let change = take(&mut input)?;
        if input.is_empty() {
            Ok(change)
        } else {
            Err(Malformed)
        }
    }
}

fn take(input: &mut Reader) -> Result<Change, Malformed> {
    Ok(match input.byte()? {
        kind::MAP => {
            let mapping = take_mapping(input)?;
            let source = take_source(input)?;
            let path = input.string()?;
            if path.len() > LONGEST_PATH {
                return Err(Malformed);
            }
            Change::Map {
                mapping,
                source,
                path: path.to_vec(),
            }
        }
        kind::IMAGE => Change::Image {
            file: take_file(input)?,
            pages: take_pages(input)?,
        },
        kind::UNMAP => Change::Unmap(take_pages(input)?),
        kind::PROTECT => Change::Protect {
            pages: take_pages(input)?,
            prot: take_prot(input)?,
        },
        kind::MOVE => {
            let old = take_aligned(input)?;
            let old_len = take_aligned(input)?;
            let new = take_aligned(input)?;
            let new_len = take_aligned(input)?;
            let ends = (old.checked_add(old_len), new.checked_add(new_len));
            if new_len == 0 || ends.0.is_none() || ends.1.is_none() {
                return Err(Malformed);
            }
            Change::Move {
                old,
                old_len,
                new,
                new_len,
                keep: take_flag(input)?,
            }
        }
        kind::DISCARD => Change::Discard {
            pages: take_pages(input)?,
            kind: if take_flag(input)? {
                Discard::Shared
            } else {
                Discard::Private
            },
        },
        kind::ON_FORK => Change::OnFork {
            pages: take_pages(input)?,
            what: match input.byte()? {
                bits @ 0..=3 => OnFork {
                    wiped: bits & 1 != 0,
                    dropped: bits & 2 != 0,
                },
                _ => return Err(Malformed),
            },
        },
        kind::BREAK => Change::Break(input.number()?),
        kind::STACK => Change::Stack(take_aligned(input)?),
        kind::CLOSE => Change::Close(take_pages(input)?),
        kind::OPEN => Change::Open(take_pages(input)?),
        kind::RESIZE => Change::Resize {
            object: take_object(input)?,
            size: take_size(input)?,
        },
        _ => return Err(Malformed),
    })
}

fn put_pages(pages: &Pages, out: &mut Writer) {
    out.number(pages.start / PAGE);
    out.number(pages.len() / PAGE);
}

fn take_pages(input: &mut Reader) -> Result<Pages, Malformed> {
    let (start, len) = (take_aligned(input)?, take_aligned(input)?);
    let end = start.checked_add(len).filter(|&end| end > start);
    let end = end.ok_or(Malformed)?;
    Ok(Pages { start, end })
}

fn take_aligned(input: &mut Reader) -> Result<u64, Malformed> {
    input.number()?.checked_mul(PAGE).ok_or(Malformed)
}

fn take_flag(input: &mut Reader) -> Result<bool, Malformed> {
    match input.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

fn take_prot(input: &mut Reader) -> Result<u8, Malformed> {
    input
        .byte()
        .and_then(|prot| if prot <= 7 { Ok(prot) } else { Err(Malformed) })
}

/// Sizes of files: what a kernel would take for one.
fn take_size(input: &mut Reader) -> Result<u64, Malformed> {
    let size = input.number()?;
    if size > i64::MAX as u64 {
        return Err(Malformed);
    }
    Ok(size)
}

/// An offset in a file: page-aligned, so small that a mapping's length can be added.
fn take_offset(input: &mut Reader) -> Result<u64, Malformed> {
    let offset = take_aligned(input)?;
    if offset > i64::MAX as u64 {
        return Err(Malformed);
    }
    Ok(offset)
}

fn put_file(file: &FileId, out: &mut Writer) {
    out.number(file.dev);
    out.number(file.ino);
    out.number(file.size);
    out.signed(file.mtime_ns);
}

fn take_file(input: &mut Reader) -> Result<FileId, Malformed> {
    Ok(FileId {
        dev: input.number()?,
        ino: input.number()?,
        size: input.number()?,
        mtime_ns: input.signed()?,
    })
}

const SHARED: u8 = 1;
const GROWS_DOWN: u8 = 2;
const NO_RESERVE: u8 = 4;
const WAS_WRITABLE: u8 = 8;

fn put_mapping(mapping: &Mapping, out: &mut Writer) {
    put_pages(&mapping.pages, out);
    out.byte(mapping.prot);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.byte(
        flag(mapping.shared, SHARED)
            | flag(mapping.grows_down, GROWS_DOWN)
            | flag(mapping.no_reserve, NO_RESERVE)
            | flag(mapping.was_writable, WAS_WRITABLE),
    );
    match &mapping.backing {
        Backing::Anon => out.byte(0),
        Backing::Heap => out.byte(1),
        Backing::Stack => out.byte(2),
        Backing::Vdso => out.byte(3),
        Backing::Shm => out.byte(4),
        Backing::File {
            file,
            offset,
            image,
        } => {
            out.byte(5);
            put_file(file, out);
            out.number(offset / PAGE);
            // No image begins at 0.
            out.number(image.unwrap_or(0));
        }
    }
}

fn take_mapping(input: &mut Reader) -> Result<Mapping, Malformed> {
    let pages = take_pages(input)?;
    let prot = take_prot(input)?;
    let flags = input.byte()?;
    if flags > 15 {
        return Err(Malformed);
    }
    let backing = match input.byte()? {
        0 => Backing::Anon,
        1 => Backing::Heap,
        2 => Backing::Stack,
        3 => Backing::Vdso,
        4 => Backing::Shm,
        5 => Backing::File {
            file: take_file(input)?,
            offset: take_offset(input)?,
            image: Some(input.number()?).filter(|&base| base != 0),
        },
        _ => return Err(Malformed),
    };
    Ok(Mapping {
        pages,
        prot,
        shared: flags & SHARED != 0,
        grows_down: flags & GROWS_DOWN != 0,
        no_reserve: flags & NO_RESERVE != 0,
        was_writable: flags & WAS_WRITABLE != 0,
        backing,
    })
}

fn put_object(object: &Object, out: &mut Writer) {
    match object {
        Object::Anon(number) => {
            out.byte(0);
            out.number(*number);
        }
        Object::Segment(id) => {
            out.byte(1);
            out.number(*id);
        }
        Object::File { dev, ino } => {
            out.byte(2);
            out.number(*dev);
            out.number(*ino);
        }
    }
}

fn take_object(input: &mut Reader) -> Result<Object, Malformed> {
    Ok(match input.byte()? {
        0 => Object::Anon(input.number()?),
        1 => Object::Segment(input.number()?),
        2 => Object::File {
            dev: input.number()?,
            ino: input.number()?,
        },
        _ => return Err(Malformed),
    })
}

fn put_source(source: &Source, out: &mut Writer) {
    match source {
        Source::Zero => out.byte(0),
        Source::Copy { name, offset } => {
            out.byte(1);
            out.string(name.as_bytes());
            out.number(offset / PAGE);
        }
        Source::Logged { offset, size } => {
            out.byte(2);
            out.number(offset / PAGE);
            out.number(*size);
        }
        Source::Object {
            object,
            offset,
            size,
            copy,
        } => {
            out.byte(3);
            put_object(object, out);
            out.number(offset / PAGE);
            out.number(*size);
            out.string(copy.as_deref().unwrap_or_default().as_bytes());
        }
    }
}

fn take_source(input: &mut Reader) -> Result<Source, Malformed> {
    Ok(match input.byte()? {
        0 => Source::Zero,
        1 => Source::Copy {
            name: name(input.string()?)?,
            offset: take_offset(input)?,
        },
        2 => Source::Logged {
            offset: take_offset(input)?,
            size: take_size(input)?,
        },
        3 => {
            let object = take_object(input)?;
            let (offset, size) = (take_offset(input)?, take_size(input)?);
            let copy = input.string()?;
            Source::Object {
                object,
                offset,
                size,
                copy: if copy.is_empty() {
                    None
                } else {
                    Some(name(copy)?)
                },
            }
        }
        _ => return Err(Malformed),
    })
}

/// The name of a file copy: one that leads nowhere but into the recording's folder of files.
pub fn is_name(name: &[u8]) -> bool {
    let plain = |&b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=LONGEST_NAME).contains(&name.len()) && name.iter().all(plain)
}

fn name(bytes: &[u8]) -> Result<String, Malformed> {
    if !is_name(bytes) {
        return Err(Malformed);
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests;
