//! mmap, munmap, mprotect and madvise, with the guest's semantics.
//!
//! In: arguments as the guest gave them. Out: the kernel's answer; the real mapping and the map of
//! mappings changed alike. A call that would touch the engine changes nothing and says so.

use std::cell::OnceCell;
use std::ops::Range;

use super::alloc::{ATTEMPTS, Want, alignment};
use clew_recording::maps::Change;

use super::file::{self, FileStat};
use super::host::{self, MAP_FIXED_NOREPLACE, real_prot};
use super::log::pages;
use super::mapping::{Backing, Mapping, OnFork, PAGE, page_down, page_up};
use super::source::Prepared;
use super::{Answer, MapError, Memory, govern};
use crate::layout;

const MAP_TYPE: i32 = 0xf;
const PROT_SEM: i32 = 8;
const ALL_PROT: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;

/// Executable anonymous maps up to this go low, where translated code reaches them with rel32.
const LOW_LIMIT: u64 = 64 << 20;

/// So do libraries.
const LIBRARY_RESERVATION: u64 = 256 << 20;

/// So do reservations of a size that only JITs ask for (HotSpot 240 MiB, V8 512 MiB and a bit):
/// larger than malloc's arenas, smaller than heaps.
const JIT_RESERVATION: std::ops::RangeInclusive<u64> = (128 << 20) + 1..=600 << 20;

/// Where a new mapping may go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// Exactly there, replacing what is there or failing if something is.
    Fixed {
        replace: bool,
    },
    Chosen,
}

impl Memory {
    pub fn mmap(
        &mut self,
        addr: u64,
        len: u64,
        prot: i32,
        flags: i32,
        fd: i32,
        off: u64,
    ) -> Answer {
        let anonymous = flags & libc::MAP_ANONYMOUS != 0;
        if len == 0 || !off.is_multiple_of(PAGE) {
            return Err(libc::EINVAL.into());
        }
        let align = alignment(len, flags);
        let unit = if flags & libc::MAP_HUGETLB != 0 {
            align
        } else {
            PAGE
        };
        let len = len
            .checked_next_multiple_of(unit)
            .filter(|&l| l <= layout::ADDRESS_END);
        let len = len.ok_or(libc::ENOMEM)?;
        let prot = prot & (ALL_PROT | PROT_SEM);

        let stat = if anonymous {
            None
        } else {
            Some(file::stat(fd)?)
        };
        if let Some(stat) = &stat
            && self.log.is_some()
            && !self.can_record(fd, stat, flags & MAP_TYPE != libc::MAP_PRIVATE)
        {
            return Err(libc::ENODEV.into());
        }
        if prot & libc::PROT_EXEC != 0 && stat.is_some() && file::on_noexec_mount(fd) {
            return Err(libc::EPERM.into());
        }

        let at = match flags & (libc::MAP_FIXED | MAP_FIXED_NOREPLACE) {
            0 => At::Chosen,
            f => At::Fixed {
                replace: f & MAP_FIXED_NOREPLACE == 0,
            },
        };
        let mut request = Request {
            len,
            prot,
            flags,
            fd,
            off,
            align,
            stat,
            elf: OnceCell::new(),
            prepared: None,
        };
        if let At::Fixed { replace } = at {
            self.check_fixed(addr, len, replace)?;
        }
        request.prepared = self.prepare(fd, stat.as_ref(), !request.private(), off, len);
        match at {
            At::Fixed { replace } => self.map_at(addr, replace, &request),
            At::Chosen => self.map_somewhere(page_down(addr), &request),
        }
    }

    /// Is a fixed range acceptable?
    fn check_fixed(&self, addr: u64, len: u64, replace: bool) -> Result<(), MapError> {
        if !addr.is_multiple_of(PAGE) {
            return Err(libc::EINVAL.into());
        }
        let end = addr
            .checked_add(len)
            .filter(|&end| end <= layout::ADDRESS_END);
        let end = end.ok_or(libc::ENOMEM)?;
        if addr < layout::LOWEST {
            return Err(libc::EPERM.into());
        }
        if !layout::is_guest(addr, len) {
            // A program that asks first gets the answer for "taken" and looks elsewhere.
            return Err(if replace {
                engine_part(addr..end)
            } else {
                libc::EEXIST.into()
            });
        }
        if !replace && !self.map.is_free(addr..end) {
            return Err(libc::EEXIST.into());
        }
        Ok(())
    }

    fn map_somewhere(&mut self, hint: u64, request: &Request) -> Answer {
        let len = request.len;
        if hint != 0 {
            let hint = hint.max(layout::LOWEST);
            let unit = if request.huge() { request.align } else { PAGE };
            let free = hint.is_multiple_of(unit)
                && layout::is_guest(hint, len)
                && self.places.is_free(&self.map, hint..hint + len);
            if free && (!request.low_only() || hint + len <= 1 << 31) {
                match self.map_at(hint, false, request) {
                    Err(MapError::Errno(libc::EEXIST)) => {}
                    answer => return answer,
                }
            }
        }
        for _ in 0..ATTEMPTS {
            let place = match request.image() {
                Some(stat) => self
                    .places
                    .find_image(&self.map, &stat.identity, len, request.align),
                None => self
                    .places
                    .find(&self.map, request.want(), len, request.align),
            };
            let place = place.ok_or(libc::ENOMEM)?;
            match self.map_at(place, false, request) {
                Err(MapError::Errno(libc::EEXIST)) => self.places.block(place..place + len),
                answer => return answer,
            }
        }
        Err(libc::ENOMEM.into())
    }

    /// Maps at `addr`, which was checked.
    fn map_at(&mut self, addr: u64, replace: bool, request: &Request) -> Answer {
        let range = addr..addr + request.len;
        let kind = request.flags & MAP_TYPE;
        let mut flags = request.flags & !(libc::MAP_FIXED | MAP_FIXED_NOREPLACE | libc::MAP_32BIT);
        // MAP_SHARED_VALIDATE refuses the newer flag; the map of mappings has checked already.
        flags |= if replace || kind == libc::MAP_SHARED_VALIDATE {
            libc::MAP_FIXED
        } else {
            MAP_FIXED_NOREPLACE
        };
        let prot = real_prot(request.prot);
        let prepared = &request.prepared;
        let fd = prepared.as_ref().map_or(request.fd, |p| p.fd(request.fd));
        host::mmap(addr, request.len, prot, flags, fd, request.off)?;
        self.forget(range.clone());
        let backing = match request.stat {
            Some(stat) => Backing::File {
                file: stat.identity,
                offset: request.off,
                image: self.image_base(&stat.identity, &range, request),
            },
            None => Backing::Anon,
        };
        let mut mapping = Mapping {
            start: range.start,
            end: range.end,
            prot: 0,
            shared: kind == libc::MAP_SHARED || kind == libc::MAP_SHARED_VALIDATE,
            grows_down: request.flags & libc::MAP_GROWSDOWN != 0,
            no_reserve: request.flags & libc::MAP_NORESERVE != 0,
            was_writable: false,
            on_fork: OnFork::default(),
            backing,
        };
        mapping.set_prot(request.prot & ALL_PROT);
        self.map.insert(mapping);
        if let Some(prepared) = prepared {
            self.log_prepared(&mapping, prepared);
        }
        Ok(addr)
    }

    /// Which image a file mapping at `range` is a part of.
    fn image_base(
        &mut self,
        file: &super::FileIdentity,
        range: &Range<u64>,
        request: &Request,
    ) -> Option<u64> {
        if let Some(base) = self.image_holding(file, range) {
            return Some(base);
        }
        let fixed = request.flags & (libc::MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        let part = request.image().is_some() || (fixed && request.is_elf());
        part.then(|| {
            self.register_image(*file, range.clone());
            range.start
        })
    }

    pub fn munmap(&mut self, addr: u64, len: u64) -> Answer {
        let end = page_up(len).and_then(|len| addr.checked_add(len));
        let end =
            end.filter(|&end| end <= layout::ADDRESS_END && addr.is_multiple_of(PAGE) && len != 0);
        let end = end.ok_or(libc::EINVAL)?;
        // Where the engine lives the guest has nothing.
        for part in layout::guest_parts(addr..end) {
            host::munmap(part.clone())?;
            self.forget_logged(part);
        }
        Ok(0)
    }

    /// [`Memory::forget`] for what has no other record of it.
    pub(super) fn forget_logged(&mut self, range: Range<u64>) {
        for gone in self.forget(range) {
            self.logged(|| Change::Unmap(pages(&(gone.start..gone.end))));
        }
    }

    /// Takes a range out of all books after the host has unmapped or replaced it.
    /// What it was.
    pub(super) fn forget(&mut self, range: Range<u64>) -> Vec<Mapping> {
        self.forget_but(range, None)
    }

    /// The same, but the image at `keep` stays known.
    pub(super) fn forget_but(&mut self, range: Range<u64>, keep: Option<u64>) -> Vec<Mapping> {
        let gone = self.map.remove(range.clone());
        for m in &gone {
            if m.executable() {
                self.code.mark_stale(m.start..m.end);
            }
        }
        if !gone.is_empty() {
            self.places.freed(&range);
        }
        self.code.drop_pages(range.clone());
        self.objects.cut(range.clone());
        govern::cut(&range);
        self.images.retain(|i| {
            Some(i.range.start) == keep || i.range.start < range.start || i.range.end > range.end
        });
        gone
    }

    pub fn mprotect(&mut self, addr: u64, len: u64, prot: i32) -> Answer {
        let grows = prot & (libc::PROT_GROWSDOWN | libc::PROT_GROWSUP);
        let known = ALL_PROT | PROT_SEM | libc::PROT_GROWSDOWN | libc::PROT_GROWSUP;
        if prot & !known != 0 || grows == libc::PROT_GROWSDOWN | libc::PROT_GROWSUP {
            return Err(libc::EINVAL.into());
        }
        if !addr.is_multiple_of(PAGE) || grows == libc::PROT_GROWSUP {
            return Err(libc::EINVAL.into());
        }
        if len == 0 {
            return Ok(0);
        }
        let end = page_up(len)
            .and_then(|len| addr.checked_add(len))
            .ok_or(libc::ENOMEM)?;
        let mut start = addr;
        if grows != 0 {
            let m = self.map.get(addr).ok_or(libc::ENOMEM)?;
            if !m.grows_down {
                return Err(libc::EINVAL.into());
            }
            // The kernel goes down to the start of what has really grown so far.
            start = m.start;
            let covered = self.map.covered_to(addr..end);
            host::mprotect(addr..covered, real_prot(prot & ALL_PROT) | grows)?;
        }
        let covered = self.map.covered_to(start..end);
        let pieces: Vec<Mapping> = self
            .map
            .overlapping(start..covered)
            .map(|m| m.slice(start, covered))
            .collect();
        for piece in pieces {
            self.protect_piece(piece, prot & ALL_PROT, grows != 0)?;
        }
        if covered < end {
            Err(libc::ENOMEM.into())
        } else {
            Ok(0)
        }
    }

    /// Gives one mapping (or part of one) another protection.
    pub(super) fn protect_piece(
        &mut self,
        piece: Mapping,
        prot: i32,
        done: bool,
    ) -> Result<(), MapError> {
        let range = piece.start..piece.end;
        let writable = prot & libc::PROT_WRITE != 0;
        if piece.prot == prot {
            return Ok(());
        }
        let runs = if writable {
            self.code.runs(range.clone())
        } else {
            vec![(range.clone(), false)]
        };
        for (run, holds_code) in runs {
            // Pages with translated code stay write-protected: permission is given at the
            // first write, most pages of a JIT's region never see one.
            let real = real_prot(prot) & if holds_code { !libc::PROT_WRITE } else { !0 };
            if !done || holds_code {
                for (part, closed) in govern::runs(run) {
                    if !closed {
                        host::mprotect(part, real)?;
                    }
                }
            }
        }
        let gone = prot & libc::PROT_EXEC == 0;
        let changeable = writable && piece.immutable();
        if piece.executable() && (gone || changeable) {
            self.code.mark_stale(range.clone());
        }
        if gone && !writable {
            self.code.drop_pages(range.clone());
        }
        self.map.update(range.clone(), |m| m.set_prot(prot));
        govern::protected(&range, prot);
        self.logged(|| Change::Protect {
            pages: pages(&range),
            prot: prot as u8,
        });
        Ok(())
    }
}

/// Writing to memory as a debugger does.
impl Memory {
    /// Makes the mapping at `addr` writable if it is private and isn't; what is to be undone, or `None` if nobody
    /// can write there. All of it, so that an instruction across two pages stays in one body of code.
    pub fn open_for_poke(&mut self, addr: u64) -> Option<Option<Mapping>> {
        let m = *self.map.get(addr)?;
        if m.can(libc::PROT_WRITE) {
            return Some(None);
        }
        if m.shared {
            return None;
        }
        let prot = m.prot | libc::PROT_READ | libc::PROT_WRITE;
        self.protect_piece(m, prot, false).ok()?;
        Some(Some(m))
    }

    /// Gives the mapping back the protection that it had.
    pub fn close_after_poke(&mut self, mapping: Mapping) {
        if let Some(now) = self.map.get(mapping.start).copied() {
            let now = now.slice(mapping.start, mapping.end);
            // What was just given can be taken again.
            let _ = self.protect_piece(now, mapping.prot, false);
        }
    }
}

/// What is to be mapped, without where.
struct Request {
    len: u64,
    prot: i32,
    flags: i32,
    fd: i32,
    off: u64,
    align: u64,
    /// The file, if there is one.
    stat: Option<FileStat>,
    /// Does the file begin like an ELF image? Looked at once.
    elf: OnceCell<bool>,
    /// For a recording.
    prepared: Option<Prepared>,
}

impl Request {
    fn is_elf(&self) -> bool {
        *self.elf.get_or_init(|| file::is_image(self.fd))
    }

    fn huge(&self) -> bool {
        self.flags & libc::MAP_HUGETLB != 0
    }

    fn low_only(&self) -> bool {
        self.flags & libc::MAP_32BIT != 0
    }

    fn private(&self) -> bool {
        self.flags & MAP_TYPE == libc::MAP_PRIVATE
    }

    /// The file, if this is a mapping of an image: executable, or the first mapping by which a
    /// dynamic linker reserves the whole span of a library.
    fn image(&self) -> Option<FileStat> {
        let stat = self.stat.filter(FileStat::is_regular)?;
        let image = self.private()
            && !self.low_only()
            && (self.prot & libc::PROT_EXEC != 0 || self.is_elf());
        image.then_some(stat)
    }

    fn want(&self) -> Want {
        if self.low_only() {
            return Want::LowOnly;
        }
        // Reservations without access: what they are for shows in their flags and size.
        let plain = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let fits = match self.flags {
            // How glibc's linker prepares a library with large alignment.
            flags if flags == plain => self.len <= LIBRARY_RESERVATION,
            flags if flags == plain | libc::MAP_NORESERVE => JIT_RESERVATION.contains(&self.len),
            _ => false,
        };
        if self.prot == libc::PROT_NONE && fits {
            return Want::Low;
        }
        if self.len > LOW_LIMIT || self.flags & libc::MAP_STACK != 0 {
            return Want::High;
        }
        if self.prot & libc::PROT_EXEC != 0 {
            Want::Low
        } else {
            Want::High
        }
    }
}

/// The first part of a range that only the engine may have.
pub(super) fn engine_part(range: Range<u64>) -> MapError {
    let parts = layout::ENGINE
        .iter()
        .map(|e| e.start.max(range.start)..e.end.min(range.end));
    MapError::Engine(parts.into_iter().find(|r| !r.is_empty()).unwrap_or(range))
}
