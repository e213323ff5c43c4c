//! ELF images in guest memory: where each begins, and its build-id.
//!
//! The loader maps segments through here; libraries that a dynamic linker maps are registered when
//! their first mapping is made.

use std::ops::Range;

use clew_recording::maps::{Change, Source};

use super::Memory;
use super::file::FileIdentity;
use super::host::{self, real_prot};
use super::log::pages;
use super::mapping::{Backing, Mapping, PAGE};
use super::{Answer, MapError};
use crate::layout;

/// A file that is mapped as an image.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) file: FileIdentity,
    pub(super) range: Range<u64>,
    /// Read at the first question.
    build_id: Option<Option<BuildId>>,
}

/// The linker's checksum of an image, at most 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BuildId {
    len: u8,
    bytes: [u8; 32],
}

impl BuildId {
    fn new(id: &[u8]) -> Option<BuildId> {
        let mut bytes = [0; 32];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(BuildId {
            len: id.len() as u8,
            bytes,
        })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl Memory {
    /// A place for an image of `span` bytes whose start must be a multiple of `align`.
    pub fn place_image(&mut self, file: &FileIdentity, span: u64, align: u64) -> Option<u64> {
        self.places
            .find_image(&self.map, file, span, align.max(PAGE))
    }

    /// Announces that segments of `file` will be mapped in `range`.
    pub fn register_image(&mut self, file: FileIdentity, range: Range<u64>) {
        self.images
            .retain(|i| i.range.end <= range.start || range.end <= i.range.start);
        self.logged(|| Change::Image {
            file: file.into(),
            pages: pages(&range),
        });
        self.images.push(Image {
            file,
            range,
            build_id: None,
        });
    }

    /// Start of the image of `file` that has `range` inside.
    pub(super) fn image_holding(&self, file: &FileIdentity, range: &Range<u64>) -> Option<u64> {
        let holds = |i: &&Image| {
            i.file == *file && i.range.start <= range.start && range.end <= i.range.end
        };
        self.images.iter().rev().find(holds).map(|i| i.range.start)
    }

    /// Maps a part of an image at exactly `range` (checked by the loader to be guest memory),
    /// replacing what is there.
    pub fn map_segment(
        &mut self,
        range: Range<u64>,
        prot: i32,
        fd: i32,
        file: FileIdentity,
        offset: u64,
    ) -> Answer {
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let stat = match self.records_changes() {
            true => Some(super::file::stat(fd)?),
            false => None,
        };
        let len = range.end - range.start;
        let prepared = self.prepare(fd, stat.as_ref(), false, offset, len);
        let fd = prepared.as_ref().map_or(fd, |p| p.fd(fd));
        let image = self.image_holding(&file, &range);
        let backing = Backing::File {
            file,
            offset,
            image,
        };
        let mapping = self.map_exactly(range, prot, flags, fd, offset, backing)?;
        if let Some(prepared) = prepared {
            self.log_prepared(&mapping, &prepared);
        }
        Ok(mapping.start)
    }

    /// Maps fresh zero pages at exactly `range`, replacing what is there.
    pub fn map_zero(&mut self, range: Range<u64>, prot: i32, backing: Backing) -> Answer {
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        let mapping = self.map_exactly(range, prot, flags, -1, 0, backing)?;
        self.logged_map(&mapping, Source::Zero, Vec::new());
        Ok(mapping.start)
    }

    fn map_exactly(
        &mut self,
        range: Range<u64>,
        prot: i32,
        flags: i32,
        fd: i32,
        offset: u64,
        backing: Backing,
    ) -> Result<Mapping, MapError> {
        let len = range.end - range.start;
        if !layout::is_guest(range.start, len) {
            return Err(MapError::Engine(range));
        }
        host::mmap(range.start, len, real_prot(prot), flags, fd, offset)?;
        self.forget_pages(range.clone());
        let mut mapping = Mapping::anon(range.start, range.end, 0);
        mapping.backing = backing;
        mapping.set_prot(prot);
        self.map.insert(mapping);
        Ok(mapping)
    }

    /// Like `forget`, but images announced for the range stay announced.
    fn forget_pages(&mut self, range: Range<u64>) {
        let images = std::mem::take(&mut self.images);
        self.forget(range);
        self.images = images;
    }

    /// Puts the synthetic vdso into guest memory and says where it is.
    pub fn map_vdso(&mut self, bytes: &[u8; PAGE as usize]) -> Answer {
        let range = layout::VDSO..layout::VDSO + PAGE;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        self.map_exactly(range.clone(), rw, flags, -1, 0, Backing::Anon)?;
        // SAFETY: the page was just mapped writable and nobody else knows of it.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), range.start as *mut u8, bytes.len());
        }
        let rx = libc::PROT_READ | libc::PROT_EXEC;
        host::mprotect(range.clone(), real_prot(rx))?;
        let mut mapping = Mapping::anon(range.start, range.end, rx);
        mapping.backing = Backing::Vdso;
        self.map.insert(mapping);
        self.logged_map(&mapping, Source::Zero, Vec::new());
        self.log_contents(range.clone());
        Ok(range.start)
    }

    /// The build-id of the image that begins at `base`, read from guest memory.
    pub fn build_id(&mut self, base: u64) -> Option<BuildId> {
        let image = self
            .images
            .iter_mut()
            .rev()
            .find(|i| i.range.start == base)?;
        if image.build_id.is_none() {
            image.build_id = Some(read_build_id(base, &image.range));
        }
        image.build_id.flatten()
    }
}

/// Finds the note in an image's program headers; whatever is odd about them means "none".
fn read_build_id(base: u64, range: &Range<u64>) -> Option<BuildId> {
    let mut page = [0; PAGE as usize];
    let n = host::read_memory(base, &mut page).ok()?;
    let head = &page[..n];
    let word = |b: &[u8], at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
    let long = |b: &[u8], at: usize| Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?));
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let phoff = usize::try_from(long(head, 32)?).ok()?;
    let phnum = u16::from_le_bytes([*head.get(56)?, *head.get(57)?]) as usize;
    let header = |i: usize| head.get(phoff.checked_add(i * 56)?..)?.get(..56);
    let headers = (0..phnum).map_while(header);
    let mut notes = Vec::new();
    let mut first = None;
    for ph in headers {
        let (kind, vaddr, size) = (word(ph, 0)?, long(ph, 16)?, long(ph, 32)?);
        match kind {
            1 if first.is_none() => first = Some(vaddr & !(PAGE - 1)),
            4 => notes.push((vaddr, size.min(1024))),
            _ => {}
        }
    }
    for (vaddr, size) in notes {
        let at = base.checked_add(vaddr.checked_sub(first?)?)?;
        if !range.contains(&at) {
            continue;
        }
        let mut buf = [0; 1024];
        let buf = &mut buf[..size as usize];
        let inside = (at - base) as usize;
        if let Some(bytes) = head.get(inside..inside + buf.len()) {
            buf.copy_from_slice(bytes);
        } else if host::read_memory(at, buf) != Ok(buf.len()) {
            continue;
        }
        let mut rest = &buf[..];
        while let (Some(name), Some(desc), Some(kind)) =
            (word(rest, 0), word(rest, 4), word(rest, 8))
        {
            let name_end = 12usize
                .checked_add(name as usize)?
                .checked_next_multiple_of(4)?;
            let desc_end = name_end.checked_add(desc as usize)?;
            let Some(id) = rest.get(name_end..desc_end) else {
                break;
            };
            if kind == 3 && rest.get(12..16) == Some(b"GNU\0") {
                return BuildId::new(id);
            }
            rest = rest
                .get(desc_end.checked_next_multiple_of(4)?..)
                .unwrap_or_default();
        }
    }
    None
}
