//! Write protection of mutable code, and which translations became stale.
//!
//! A page whose code was translated is kept unwritable for real, whatever the guest's own
//! protection; the guest's first write faults, the cache throws the page's translations away and
//! the page becomes writable again. Changes that need no write (unmapping, mapping over, ...) are
//! queued as *stale* ranges, which the cache takes before it runs guest code again.
//!
//! Each protected page parts a mapping of the kernel's, of which a process may have only so many (`vm.max_map_count`). Where
//! that is used up, a page can't be protected, and the cache compares its code at each entry instead; and one that can't
//! be parted from protected neighbours becomes writable together with them.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Memory;
use super::host::{self, real_prot};
use super::mapping::{PAGE, page_down, page_up};
use super::reserve;

#[derive(Default)]
pub(super) struct CodePages {
    /// Addresses of pages that hold translated mutable code.
    pages: BTreeSet<u64>,
    stale: Vec<Range<u64>>,
    /// The same for another cache, if there is one.
    stale_too: Option<Vec<Range<u64>>>,
}

impl CodePages {
    pub(super) fn mark_stale(&mut self, range: Range<u64>) {
        if let Some(too) = &mut self.stale_too {
            too.push(range.clone());
        }
        match self.stale.last_mut() {
            Some(last) if last.start <= range.end && range.start <= last.end => {
                last.start = last.start.min(range.start);
                last.end = last.end.max(range.end);
            }
            _ => self.stale.push(range),
        }
    }

    /// Pages in `range` are no longer protected by us; what was translated from them is stale.
    pub(super) fn drop_pages(&mut self, range: Range<u64>) {
        for page in self.take(range) {
            self.mark_stale(page..page + PAGE);
        }
    }

    /// Is there a page with translated code in `range`?
    pub(super) fn holds(&self, range: Range<u64>) -> bool {
        self.pages.range(range).next().is_some()
    }

    fn take(&mut self, range: Range<u64>) -> Vec<u64> {
        let pages: Vec<u64> = self.pages.range(range).copied().collect();
        pages.iter().for_each(|p| {
            self.pages.remove(p);
        });
        pages
    }

    /// `page` and the pages next to it, inside `range`, that hold translated code.
    fn around(&self, page: u64, range: &Range<u64>) -> Range<u64> {
        let (mut start, mut end) = (page, page + PAGE);
        while start > range.start && self.pages.contains(&(start - PAGE)) {
            start -= PAGE;
        }
        while end < range.end && self.pages.contains(&end) {
            end += PAGE;
        }
        start..end
    }

    /// Cuts `range` into runs of pages with (`true`) and without translated code.
    pub(super) fn runs(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
        let mut at = range.start;
        for &page in self.pages.range(range.clone()) {
            if at < page {
                runs.push((at..page, false));
            }
            match runs.last_mut() {
                Some((run, true)) if run.end == page => run.end += PAGE,
                _ => runs.push((page..page + PAGE, true)),
            }
            at = page + PAGE;
        }
        if at < range.end {
            runs.push((at..range.end, false));
        }
        runs
    }
}

impl Memory {
    /// Keeps the pages of `range` from being written until their code is given up. The error is an errno of the host:
    /// some of them can still be written.
    pub fn protect_code(&mut self, range: Range<u64>) -> Result<(), i32> {
        let mut page = page_down(range.start);
        while page < range.end {
            if !self.code.pages.contains(&page) {
                if let Some(m) = self.map.get(page).filter(|m| m.can(libc::PROT_WRITE)) {
                    let prot = real_prot(m.prot) & !libc::PROT_WRITE;
                    // There is doing without.
                    reserve::guests(|| host::mprotect(page..page + PAGE, prot))?;
                }
                self.code.pages.insert(page);
            }
            page += PAGE;
        }
        Ok(())
    }

    /// Is a write fault at `addr` due to our protection, so that the guest must not see it?
    pub fn code_write_fault(&self, addr: u64) -> bool {
        self.code.pages.contains(&page_down(addr))
            && self.map.get(addr).is_some_and(|m| m.can(libc::PROT_WRITE))
    }

    /// Is any page kept from being written?
    #[inline]
    pub fn protects_code(&self) -> bool {
        !self.code.pages.is_empty()
    }

    pub fn is_code_protected(&self, addr: u64) -> bool {
        self.code.pages.contains(&page_down(addr))
    }

    /// Gives the page at `addr` its own protection back. The caller has thrown (or throws) its
    /// translations away: the page is not reported as stale.
    pub fn unprotect_code(&mut self, addr: u64) {
        let page = page_down(addr);
        if self.code.pages.remove(&page) {
            self.make_writable(page);
        }
    }

    /// Gives a page that is protected no more its own protection back; false if the guest can't write to it anyway.
    fn make_writable(&mut self, page: u64) -> bool {
        let Some(m) = self.map.get(page).filter(|m| m.can(libc::PROT_WRITE)) else {
            return false;
        };
        let (mapping, prot) = (m.start..m.end, real_prot(m.prot));
        if host::mprotect(page..page + PAGE, prot).is_ok() {
            return true;
        }
        // With the protected pages on both sides, and with all of the mapping: that takes fewer mappings, not more.
        let around = self.code.around(page, &mapping);
        for range in [around, mapping] {
            if host::mprotect(range.clone(), prot).is_ok() {
                self.code.drop_pages(range);
                return true;
            }
        }
        host::out_of_mappings("code that was executed can't be made writable again")
    }

    /// Makes protected pages in `addr..addr+len` writable again and marks them stale: for memory
    /// that a system call writes (EFAULT otherwise). Was there any?
    pub fn unprotect_for_kernel(&mut self, addr: u64, len: u64) -> bool {
        let end = addr.checked_add(len).and_then(page_up).unwrap_or(u64::MAX);
        let mut any = false;
        for page in self.code.take(page_down(addr)..end.max(page_down(addr))) {
            self.code.mark_stale(page..page + PAGE);
            any |= self.make_writable(page);
        }
        any
    }

    /// Has anything become stale since the last [`Memory::take_stale`]?
    #[inline]
    pub fn stale_pending(&self) -> bool {
        !self.code.stale.is_empty()
    }

    /// From here on stale ranges are also kept for a second cache.
    pub fn keep_stale(&mut self) {
        self.code.stale_too.get_or_insert_default();
    }

    /// What became stale since the last time, for the second cache.
    pub fn take_stale_too(&mut self) -> Vec<Range<u64>> {
        let too = self.code.stale_too.as_mut();
        too.map(std::mem::take).unwrap_or_default()
    }

    /// Guest ranges whose translations must not be used any more.
    pub fn take_stale(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.code.stale)
    }
}
