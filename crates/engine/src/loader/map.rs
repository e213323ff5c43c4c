//! Carries out a plan: maps an image's segments into guest memory.

use std::ops::Range;
use std::os::fd::AsRawFd;

use super::elf::{Image, Problem, Segment};
use super::error::LoadError;
use super::resolve::Executable;
use crate::guest::access;
use crate::layout;
use crate::memory::{Backing, MapError, Memory};

/// Where an image came to lie.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// What to add to the file's own addresses.
    pub bias: u64,
    /// Address of its first page.
    pub base: u64,
}

/// Maps all segments of `image`, at its own addresses or where the file's place is.
pub fn map_image(
    memory: &mut Memory,
    file: &Executable,
    image: &Image,
) -> Result<Loaded, LoadError> {
    let failed = |e: &MapError| LoadError::memory(&file.path, e);
    let span = image.span.end - image.span.start;
    let base = if image.fixed {
        image.span.start
    } else {
        // Keep the file's addresses and the real ones equal modulo its alignment.
        let skip = image.span.start % image.align;
        let place = memory.place_image(&file.identity, span + skip, image.align);
        place.ok_or_else(|| failed(&MapError::Errno(libc::ENOMEM)))? + skip
    };
    let place = base..base + span;
    if base < layout::LOWEST {
        return Err(LoadError::problem(
            &file.path,
            Problem::Corrupt("a segment at address 0"),
        ));
    }
    let on_vdso = place.start <= layout::VDSO && layout::VDSO < place.end;
    if on_vdso || !layout::is_guest(base, span) {
        return Err(failed(&MapError::Engine(place)));
    }
    if memory
        .iter()
        .any(|m| m.start < place.end && place.start < m.end)
    {
        return Err(failed(&MapError::Errno(libc::EEXIST)));
    }
    let bias = base.wrapping_sub(image.span.start);
    memory.register_image(file.identity, place);
    for segment in &image.segments {
        map_segment(memory, file, segment, bias).map_err(|e| failed(&e))?;
    }
    Ok(Loaded { bias, base })
}

fn map_segment(
    memory: &mut Memory,
    file: &Executable,
    segment: &Segment,
    bias: u64,
) -> Result<(), MapError> {
    let moved = |r: &Range<u64>| r.start.wrapping_add(bias)..r.end.wrapping_add(bias);
    if let Some((pages, offset)) = &segment.file {
        let fd = file.fd.as_raw_fd();
        memory.map_segment(moved(pages), segment.prot, fd, file.identity, *offset)?;
    }
    if !segment.clear.is_empty() {
        let clear = moved(&segment.clear);
        access::note_write(clear.start, clear.end - clear.start);
        // SAFETY: the page was just mapped writable, and the plan made sure that the file has it.
        unsafe {
            std::ptr::write_bytes(
                clear.start as *mut u8,
                0,
                (clear.end - clear.start) as usize,
            );
        }
        memory.log_contents(clear);
    }
    if !segment.zero.is_empty() {
        let exec = segment.prot & libc::PROT_EXEC;
        let prot = libc::PROT_READ | libc::PROT_WRITE | exec;
        memory.map_zero(moved(&segment.zero), prot, Backing::Anon)?;
    }
    Ok(())
}
