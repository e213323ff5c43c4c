//! madvise: advice is passed on; what it throws away is known.

use std::ops::Range;

use clew_recording::maps::{Change, Discard};

use super::host;
use super::log::pages;
use super::mapping::{Backing, Mapping, OnFork, PAGE, page_up};
use super::{Answer, MapError, Memory};
use crate::layout;

const MADV_DONTNEED_LOCKED: i32 = 24;
const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;

impl Memory {
    /// Advice that throws contents away makes translations of them stale.
    pub fn madvise(&mut self, addr: u64, len: u64, advice: i32) -> Answer {
        let end = page_up(len)
            .and_then(|len| addr.checked_add(len))
            .ok_or(libc::EINVAL)?;
        if !layout::is_guest(addr, end - addr) && addr.is_multiple_of(PAGE) {
            // Where the engine lives the guest has nothing: a hole.
            for part in layout::guest_parts(addr..end) {
                match self.madvise(part.start, part.end - part.start, advice) {
                    Ok(_) | Err(MapError::Errno(libc::ENOMEM)) => {}
                    refused => return refused,
                }
            }
            return Err(libc::ENOMEM.into());
        }
        let discards = [
            libc::MADV_DONTNEED,
            libc::MADV_FREE,
            libc::MADV_REMOVE,
            MADV_DONTNEED_LOCKED,
        ];
        if discards.contains(&advice) {
            self.before_discard(addr..end);
            if self.records_changes() {
                return self.discard_recorded(addr..end, len, advice);
            }
        }
        // Guards fault without a mapping that says so. Kernels before 6.13 don't know them either.
        let guards = [MADV_GUARD_INSTALL, MADV_GUARD_REMOVE];
        if guards.contains(&advice) && self.records_changes() {
            return Err(libc::EINVAL.into());
        }
        let answer = host::madvise(addr, len, advice).map_err(MapError::from);
        let changed: fn(&mut OnFork) = match advice {
            libc::MADV_DONTFORK => |on_fork| on_fork.dropped = true,
            libc::MADV_DOFORK => |on_fork| on_fork.dropped = false,
            libc::MADV_WIPEONFORK => |on_fork| on_fork.wiped = true,
            libc::MADV_KEEPONFORK => |on_fork| on_fork.wiped = false,
            _ => return answer,
        };
        if answer.is_ok() && addr.is_multiple_of(PAGE) {
            let parts: Vec<Mapping> = self
                .map
                .overlapping(addr..end)
                .map(|m| m.slice(addr, end))
                .collect();
            for m in parts {
                let (part, mut what) = (m.start..m.end, m.on_fork);
                changed(&mut what);
                if what != m.on_fork {
                    self.map.update(part.clone(), |m| m.on_fork = what);
                    self.logged(|| Change::OnFork {
                        pages: pages(&part),
                        what,
                    });
                }
            }
        }
        answer
    }

    /// Contents of `range` are about to be thrown away.
    pub(super) fn before_discard(&mut self, range: Range<u64>) {
        self.unprotect_for_kernel(range.start, range.end - range.start);
        let changed: Vec<_> = self.map.overlapping(range.clone()).copied().collect();
        for m in changed.iter().filter(|m| m.executable() && !m.immutable()) {
            let part = m.start.max(range.start)..m.end.min(range.end);
            self.code.mark_stale(part);
        }
    }

    /// Mapping by mapping, as the kernel goes about it, so that it is known how far it came.
    fn discard_recorded(&mut self, range: Range<u64>, len: u64, advice: i32) -> Answer {
        let Range { start, end } = range.clone();
        let parts: Vec<Mapping> = self
            .map
            .overlapping(range)
            .map(|m| m.slice(start, end))
            .collect();
        let odd = !start.is_multiple_of(PAGE) || len == 0;
        if odd || parts.is_empty() {
            return host::madvise(start, len, advice).map_err(MapError::from);
        }
        let hole = self.map.covered_to(start..end) < end;
        for m in parts {
            let part = m.start..m.end;
            let plain = m.backing != Backing::Shm && !m.shared;
            // Pages that are freed lazily change at a moment that nobody knows.
            let real = match advice {
                libc::MADV_FREE if plain && !matches!(m.backing, Backing::File { .. }) => {
                    libc::MADV_DONTNEED
                }
                advice => advice,
            };
            let answer = host::madvise(part.start, part.end - part.start, real);
            let kind = if advice == libc::MADV_REMOVE {
                Discard::Shared
            } else {
                Discard::Private
            };
            match answer {
                Ok(_) => {
                    if plain || kind == Discard::Shared {
                        self.logged(|| Change::Discard {
                            pages: pages(&part),
                            kind,
                        });
                    }
                    self.log_original(&m);
                }
                // The stack's range is more than what it has grown to.
                Err(libc::ENOMEM) if m.backing == Backing::Stack => {
                    self.logged(|| Change::Discard {
                        pages: pages(&part),
                        kind,
                    });
                }
                Err(errno) => {
                    // A part of it may have been done, where it really is several mappings.
                    if plain {
                        self.log_contents(accessible(&m));
                    }
                    return Err(errno.into());
                }
            }
        }
        if hole {
            return Err(libc::ENOMEM.into());
        }
        Ok(0)
    }

    /// A private mapping was thrown back to its file, of which a replay has no copy.
    fn log_original(&mut self, m: &Mapping) {
        if let Backing::File { file, .. } = m.backing
            && !m.shared
            && !self.originals.is_copied(&file)
        {
            self.log_contents(accessible(m));
        }
    }

    /// In a child that was just forked: what the guest asked to be wiped or dropped in it.
    pub fn after_fork_child(&mut self) {
        let odd: Vec<Mapping> = self
            .map
            .iter()
            .filter(|m| m.on_fork != OnFork::default())
            .copied()
            .collect();
        for m in odd {
            if m.on_fork.dropped {
                self.forget_logged(m.start..m.end);
            } else {
                self.before_discard(m.start..m.end);
                self.logged(|| Change::Discard {
                    pages: pages(&(m.start..m.end)),
                    kind: Discard::Private,
                });
            }
        }
    }
}

/// The part of a mapping that its file has something for.
fn accessible(m: &Mapping) -> Range<u64> {
    let len = match m.backing {
        Backing::File { file, offset, .. } => file.size.saturating_sub(offset).min(m.len()),
        _ => m.len(),
    };
    m.start..m.start + len
}
