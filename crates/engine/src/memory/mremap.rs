//! mremap: shrink, grow in place, move.

use clew_recording::maps::Change;

use super::alloc::{ATTEMPTS, Want};
use super::host::{self, MAP_FIXED_NOREPLACE};
use super::mapping::{Backing, Mapping, PAGE, page_up};
use super::ops::engine_part;
use super::{Answer, MapError, Memory, govern};
use crate::layout;

const MAYMOVE: i32 = libc::MREMAP_MAYMOVE;
const FIXED: i32 = libc::MREMAP_FIXED;
pub(super) const DONTUNMAP: i32 = 4;

impl Memory {
    pub fn mremap(&mut self, old: u64, old_len: u64, new_len: u64, flags: i32, new: u64) -> Answer {
        let bad = flags & !(MAYMOVE | FIXED | DONTUNMAP) != 0
            || (flags & (FIXED | DONTUNMAP) != 0 && flags & MAYMOVE == 0)
            || !old.is_multiple_of(PAGE);
        let (Some(old_len), Some(new_len)) = (page_up(old_len), page_up(new_len)) else {
            return Err(libc::EINVAL.into());
        };
        if bad || new_len == 0 || (flags & DONTUNMAP != 0 && old_len != new_len) {
            return Err(libc::EINVAL.into());
        }
        if old_len > layout::ADDRESS_END || new_len > layout::ADDRESS_END {
            return Err(libc::ENOMEM.into());
        }
        let old_end = old.checked_add(old_len).ok_or(libc::EINVAL)?;
        if self.map.get(old).is_none()
            && let Some(ours) = host::engine_overlap(old..old_end)
        {
            return Err(MapError::Engine(ours));
        }
        if flags & FIXED != 0 {
            let new_end = new
                .checked_add(new_len)
                .filter(|&e| e <= layout::ADDRESS_END);
            let new_end = new_end.filter(|_| new.is_multiple_of(PAGE) && new >= layout::LOWEST);
            let new_end = new_end.ok_or(libc::EINVAL)?;
            if new < old_end && old < new_end {
                return Err(libc::EINVAL.into());
            }
            if !layout::is_guest(new, new_len) {
                return Err(engine_part(new..new_end));
            }
        }
        let whole = *self.map.get(old).ok_or(libc::EFAULT)?;
        if old_len == 0 && !whole.shared {
            return Err(libc::EINVAL.into());
        }

        if flags & (FIXED | DONTUNMAP) == 0 && old_len != 0 && new_len <= old_len {
            // Shrinking (or nothing): the tail goes, whatever it is made of.
            if new_len < old_len {
                self.munmap(old + new_len, old_len - new_len)?;
            }
            return Ok(old);
        }
        if old_end > whole.end {
            return Err(libc::EFAULT.into());
        }
        if (old_len == 0 || new_len > old_len) && !self.may_grow(&whole) {
            return Err(libc::ENOMEM.into());
        }
        if govern::governs(&(old..old_end.max(old + 1))) {
            let text =
                "memory that is shared with another recorded process can't be moved or resized";
            self.log_note(format!("{text}: mremap fails"), true);
            return Err(libc::ENOMEM.into());
        }
        // Our write protection cuts the real mapping to pieces, which can't be moved as one.
        self.unprotect_for_kernel(old, old_len);

        if flags & FIXED != 0 {
            return self.move_mapping(&whole, old, old_len, new_len, flags, new);
        }
        if flags & DONTUNMAP == 0
            && old_len != 0
            && old_end == whole.end
            && self.grow_in_place(&whole, old, old_len, new_len)?
        {
            return Ok(old);
        }
        if flags & MAYMOVE == 0 {
            return Err(libc::ENOMEM.into());
        }
        let low = (layout::IMAGES.start..layout::BY_REQUEST.end).contains(&old);
        let want = if low { Want::Low } else { Want::High };
        for _ in 0..ATTEMPTS {
            let place = self
                .places
                .find(&self.map, want, new_len, PAGE)
                .ok_or(libc::ENOMEM)?;
            // mremap replaces what it finds: make sure that it finds nothing.
            let probe =
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | MAP_FIXED_NOREPLACE;
            match host::mmap(place, new_len, libc::PROT_NONE, probe, -1, 0) {
                Err(libc::EEXIST) => self.places.block(place..place + new_len),
                Err(errno) => return Err(errno.into()),
                Ok(_) => {
                    let moved =
                        self.move_mapping(&whole, old, old_len, new_len, flags | FIXED, place);
                    if moved.is_err() && self.map.is_free(place..place + new_len) {
                        host::munmap(place..place + new_len)?;
                    }
                    return moved;
                }
            }
        }
        Err(libc::ENOMEM.into())
    }

    fn grow_in_place(
        &mut self,
        whole: &Mapping,
        old: u64,
        old_len: u64,
        new_len: u64,
    ) -> Result<bool, MapError> {
        let Some(end) = old.checked_add(new_len) else {
            return Ok(false);
        };
        // The stack's area is not for maps to grow into.
        let into_stack = old < layout::STACK.start && layout::STACK.start < end;
        if into_stack
            || !layout::is_guest(old, new_len)
            || !self.places.is_free(&self.map, whole.end..end)
        {
            return Ok(false);
        }
        match host::mremap(old, old_len, new_len, 0, 0) {
            Ok(_) => {
                let mut grown = whole.slice(old, whole.end);
                grown.end = end;
                self.map.insert(grown);
                self.logged(|| Change::Move {
                    old,
                    old_len,
                    new: old,
                    new_len,
                    keep: false,
                });
                self.log_grown(old + old_len..end);
                Ok(true)
            }
            Err(libc::ENOMEM) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn move_mapping(
        &mut self,
        whole: &Mapping,
        old: u64,
        old_len: u64,
        new_len: u64,
        flags: i32,
        new: u64,
    ) -> Answer {
        host::mremap(old, old_len, new_len, flags, new)?;
        let keep = flags & DONTUNMAP != 0;
        self.after_move(whole, old, old_len, new, new_len, keep);
        self.logged(|| Change::Move {
            old,
            old_len,
            new,
            new_len,
            keep,
        });
        if old_len < new_len {
            self.log_grown(new + old_len..new + new_len);
        }
        Ok(new)
    }

    /// Changes the map as the real mapping was moved. `whole` is what `old` is a part of.
    pub(super) fn after_move(
        &mut self,
        whole: &Mapping,
        old: u64,
        old_len: u64,
        new: u64,
        new_len: u64,
        keep: bool,
    ) {
        self.forget(new..new + new_len);
        let moved = whole.slice(old, whole.end).moved_to(new, new_len);
        if old_len != 0 {
            self.forget(old..old + old_len);
            if keep {
                // The old range stays, emptied.
                let left = whole.slice(old, old + old_len);
                if whole.executable() && !matches!(whole.backing, Backing::File { .. }) {
                    self.code.mark_stale(old..old + old_len);
                }
                self.map.insert(left);
            }
        }
        self.map.insert(moved);
    }
}
