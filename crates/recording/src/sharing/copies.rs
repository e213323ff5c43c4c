//! Copies of pages, behind the table: a page that changes hands goes in, what is new in it for its taker comes out.
//!
//! All of this happens in the step that takes the page, under the lock. Whoever dies in the midst of it leaves a copy that the
//! next one brings up to date: a version counts before any of its changes is there.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::rules::{Page, Rules, Taken};
use super::versions::{self, Mark, Version, marks};
use super::{Contents, PageOf, SIZE, Sharing};
use crate::shared::{self, PAGE};

/// So many pages can have a copy; of others all contents are written down whenever they change hands.
const MOST_COPIES: usize = 1 << 14;

/// A page when it last changed hands.
#[repr(C)]
pub(super) struct Copy {
    contents: Contents,
    marks: [Mark; marks(PAGE / 8)],
}

/// The size of the copies, which lie behind the table.
pub(crate) const COPIES: usize = (MOST_COPIES * size_of::<Copy>()).next_multiple_of(PAGE);

/// Looks at a page of this process, whether or not it owns it.
pub trait Look {
    /// False if it can't be read.
    fn read(&self, page: PageOf, to: &mut Contents) -> bool;
    /// Whether this is in it; `None` if it can't be read.
    fn is(&self, page: PageOf, contents: &Contents) -> Option<bool>;
}

/// Sees a page and which of its words are new.
pub type Each<'a> = dyn FnMut(&Contents, Range<usize>) + 'a;

/// A page that a process is about to own.
pub struct Wanted<'a> {
    pub page: PageOf,
    /// Which version of it the process's replay has.
    pub seen: Option<Version>,
    /// The replay has what was in it before anybody owned it.
    pub known: bool,
    pub look: &'a dyn Look,
}

/// The page can't be read.
pub(super) struct Unread;

impl Sharing {
    /// The page is ours: what is new in it? If it can't be read, nobody will see what is in it.
    pub(super) fn taken(&self, rules: &Rules, taken: &Taken, wanted: &Wanted, each: &mut Each) {
        let _ = if taken.first && wanted.known {
            self.publish(rules, taken, wanted, &mut |_, _| {})
        } else {
            self.publish(rules, taken, wanted, each)
        };
    }

    /// A page was taken: publishes it, and tells whom it was taken from. `each` sees what has changed since `seen`, or all
    /// if that isn't known.
    pub(super) fn publish(
        &self,
        rules: &Rules,
        taken: &Taken,
        wanted: &Wanted,
        each: &mut Each,
    ) -> Result<(), Unread> {
        let Wanted { page, look, .. } = *wanted;
        let entry = &rules.pages[taken.entry as usize];
        let mut version = entry.version.load(Relaxed);
        // What only one process has ever had needs no copy.
        let has_copy = taken.from.is_some() || entry.copy.load(Relaxed) != 0;
        let copy = (has_copy && version < Version::MAX - 1).then(|| self.copy_of(entry));
        let Some((copy, is_new)) = copy.flatten() else {
            let now = read(look, page)?;
            each(&now, 0..now.len());
            return Ok(());
        };
        // SAFETY: mapped for good, with room for all of them; all want the lock for this.
        let Copy { contents, marks } = unsafe { &mut *copy };
        if is_new {
            *contents = read(look, page)?;
            version = 1;
            entry.version.store(version, Relaxed);
        } else if !look.is(page, contents).ok_or(Unread)? {
            let now = read(look, page)?;
            entry.version.store(version + 1, Relaxed);
            version = versions::publish(contents, marks, version, &now);
        }
        rules.published(taken, version);
        match wanted.seen {
            Some(seen) if seen == version => {}
            Some(seen) => versions::changed(marks, seen, |range| each(contents, range)),
            None => each(contents, 0..contents.len()),
        }
        Ok(())
    }

    /// The copy of a page, a new one if it has none; `None` if there is no room.
    fn copy_of(&self, page: &Page) -> Option<(*mut Copy, bool)> {
        if self.copies.load(Relaxed).is_null() {
            let at = self.channel.sharing_offset() + SIZE;
            let place = shared::map(std::ptr::null_mut(), COPIES, self.channel.fd(), at);
            self.copies.store(place.ok()?.cast(), Relaxed);
        }
        let mut number = page.copy.load(Relaxed);
        let is_new = number == 0;
        if is_new {
            number = self.table.copies.load(Relaxed) + 1;
            if number as usize > MOST_COPIES {
                return None;
            }
            self.table.copies.store(number, Relaxed);
            page.copy.store(number, Relaxed);
        }
        // SAFETY: within what is mapped.
        let copy = unsafe { self.copies.load(Relaxed).add(number as usize - 1) };
        Some((copy, is_new))
    }
}

fn read(look: &dyn Look, page: PageOf) -> Result<Contents, Unread> {
    let mut now: Contents = [0; _];
    let read = look.read(page, &mut now);
    read.then_some(now).ok_or(Unread)
}
