//! Memory that recorded processes share: whose it is, page by page.
//!
//! In: the shared mappings of this process, its accesses to them, and what other recorded processes ask
//! for. Out: [`Record`]s for the log: pages that became this process's, with what others have done to
//! them, and pages that it gave away.
//!
//! Shared memory that only one process has is left alone. As soon as another one may have it too (after a fork,
//! or when both map the same file or segment) it is *governed*: a page belongs to one process at a time
//! ([`Sharing`]), and everybody else has it *closed*, without any real access. A touch of a closed page is
//! an event: the process waits until the page is its own, and what differs from when it last had it is
//! written down. A replay has the same pages closed at the same times, so the same instruction stops there.
//!
//! A page is given away at places that can be found again: at the end of a budget, and after an event. One who
//! waits in the kernel has *parked*: its pages may be taken meanwhile.
//!
//! The state is the process's, not [`super::Memory`]'s, since every access to guest memory can come to a closed page.

use std::ops::Range;

use clew_recording::maps::{Change, Object, Pages};
use clew_recording::sharing::{self, Entry, Sharing};
use rustc_hash::{FxHashMap, FxHashSet};

use super::host::{self, real_prot};
use super::mapping::{PAGE, page_down};
use super::ranges::Ranges;
use crate::host::copy;
use crate::host::hub;
use crate::kernel::stop;
use crate::syscall;

/// So many pages that were acquired last are remembered when they may be taken, so that only what changed is
/// written down later.
const REMEMBERED: usize = 32;
/// Differences closer than this are one.
const GAP: usize = 16;

/// For the log, in order.
pub enum Record {
    Change(Change),
    Contents(u64, Vec<u8>),
}

/// Where a part of an object is mapped.
#[derive(Clone, Copy)]
struct View {
    start: u64,
    end: u64,
    /// The object's name in the table.
    name: u64,
    /// Of `start` in the object.
    offset: u64,
    /// The guest's protection.
    prot: i32,
    governed: bool,
    /// A replay knows what was in it when it became governed.
    known: bool,
}

impl View {
    fn page_of(&self, addr: u64) -> u64 {
        (self.offset + (addr - self.start)) / PAGE
    }

    fn slice(&self, start: u64, end: u64) -> View {
        View {
            start,
            end,
            offset: self.offset.wrapping_add(start - self.start),
            ..*self
        }
    }

    fn readable(&self) -> bool {
        self.prot & (libc::PROT_READ | libc::PROT_WRITE) != 0
    }
}

type Shadow = Box<[u8; PAGE as usize]>;

struct State {
    sharing: Option<Sharing>,
    views: Vec<View>,
    closed: Ranges,
    /// Pages that are this process's: what they are a page of.
    held: FxHashMap<Entry, (u64, u64)>,
    /// Acquired last.
    recent: Vec<Entry>,
    /// What was in pages when they were given away.
    shadows: FxHashMap<Entry, Shadow>,
    /// Asked for by others, to be given away at the next occasion.
    asked: Vec<Entry>,
    used: FxHashSet<u64>,
    /// Second mappings of single pages, always accessible: for the kernel's futexes.
    aliases: FxHashMap<(u64, u64), u64>,
    records: Vec<Record>,
    governs: bool,
    /// A page was acquired for an instruction that hasn't been executed yet: nothing is given away until it
    /// was, or two processes could go on taking pages from each other for ever.
    fresh: bool,
}

struct Cell(std::cell::UnsafeCell<Option<State>>);
// SAFETY: used on the executor's kernel thread only.
unsafe impl Sync for Cell {}
static STATE: Cell = Cell(std::cell::UnsafeCell::new(None));

fn state() -> &'static mut State {
    // SAFETY: as above; references don't outlive a function of this file, and none of them calls another
    // through which a second one would be made while the first is used.
    let state = unsafe { &mut *STATE.0.get() };
    state.get_or_insert_with(|| State {
        sharing: None,
        views: Vec::new(),
        closed: Ranges::new(),
        held: FxHashMap::default(),
        recent: Vec::new(),
        shadows: FxHashMap::default(),
        asked: Vec::new(),
        used: FxHashSet::default(),
        aliases: FxHashMap::default(),
        records: Vec::new(),
        governs: false,
        fresh: false,
    })
}

/// From now on this process takes part.
pub fn begin(sharing: Sharing) {
    state().sharing = Some(sharing);
}

/// Whether any memory of this process is governed.
#[inline]
pub fn active() -> bool {
    state().governs
}

/// Whether there is something for the log.
#[inline]
pub fn pending() -> bool {
    !state().records.is_empty()
}

pub fn take_records() -> Vec<Record> {
    std::mem::take(&mut state().records)
}

/// A number for new shared anonymous memory.
pub fn new_object() -> Option<u64> {
    state().sharing.as_ref().map(Sharing::new_object)
}

/// Whether others have the object; asked before it is mapped.
pub fn is_used_by_others(object: &Object) -> bool {
    state().join(object)
}

/// A shared mapping was made. True if it is closed, which is then to be written down.
pub fn add(range: Range<u64>, object: Object, offset: u64, prot: i32) -> bool {
    state().add(range, object, offset, prot)
}

/// Nothing of the range is mapped any more.
pub fn cut(range: &Range<u64>) {
    let state = state();
    if !state.views.is_empty() || !state.closed.is_empty() {
        state.cut(range);
    }
}

/// The guest's protection of a range has changed (the real one only where [`runs`] says).
pub fn protected(range: &Range<u64>, prot: i32) {
    state().protected(range, prot);
}

/// Cuts a range into what is closed and what isn't.
pub fn runs(range: Range<u64>) -> Vec<(Range<u64>, bool)> {
    state().closed.runs(range)
}

/// Whether a part of the range is governed.
pub fn governs(range: &Range<u64>) -> bool {
    let state = state();
    state.governs && state.overlapping(range).any(|view| view.governed)
}

/// An access to the range failed: acquires closed pages in it. True if there were any, so that it is worth
/// another try.
pub fn touch(addr: u64, len: u64) -> bool {
    let state = state();
    state.governs && state.touch(addr, len)
}

/// An instruction's access to `addr` failed.
pub fn touch_for(addr: u64, write: bool) -> bool {
    let state = state();
    let touched = state.governs && state.may(addr, write) && state.touch(addr, 1);
    state.fresh |= touched;
    touched
}

/// All pages of these ranges become this process's, at the same time.
pub fn acquire_all(ranges: &[(u64, u64)]) {
    let state = state();
    if state.governs {
        // One may be lost while another is waited for.
        while ranges
            .iter()
            .fold(false, |any, &(addr, len)| state.touch(addr, len) | any)
        {}
    }
}

/// The guest is about to run: what it has acquired it will use.
#[inline]
pub fn runs_guest() {
    state().fresh = false;
}

/// Whether others want something, so that [`serve`] is to be called.
#[inline]
pub fn wanted() -> bool {
    let state = state();
    let sharing = state.sharing.as_ref().filter(|_| !state.fresh);
    sharing.is_some_and(|sharing| sharing.wanted() || !state.asked.is_empty())
}

/// Gives away what others have asked for. The guest stands at a place that can be found again.
pub fn serve() {
    state().serve();
}

/// The process is about to wait in the kernel and doesn't touch guest memory until [`unpark`].
pub fn park() {
    let state = state();
    if state.taking_part() {
        state.remember();
        if let Some(sharing) = &state.sharing {
            sharing.park();
        }
    }
}

/// The process is about to become another program, which knows no kicks: from here on nobody sends one, and those
/// on their way arrive.
pub fn leave() {
    if let Some(sharing) = &state().sharing {
        sharing.park();
        // SAFETY: no arguments. Signals are taken when a system call returns.
        unsafe { syscall!(libc::SYS_getpid) };
    }
}

pub fn unpark() {
    let state = state();
    if let Some(sharing) = &state.sharing {
        if !state.taking_part() && !sharing.is_parked() {
            return;
        }
        sharing.unpark();
        state.collect();
        state.govern_wanted();
    }
}

/// Before a fork: all shared memory becomes governed. Code isn't: what of it is shared.
pub fn before_fork() -> Vec<Range<u64>> {
    state().before_fork()
}

/// In the forked child, which writes `stream` from now on.
pub fn become_child(stream: u32) {
    state().become_child(stream);
}

/// The executor runs on this kernel thread from now on.
pub fn on_this_thread() {
    if let Some(sharing) = &state().sharing {
        sharing.on_this_thread();
    }
}

/// For the kernel's futexes: an address of the same memory that is always accessible.
pub fn alias(addr: u64) -> u64 {
    let state = state();
    if state.governs {
        state.alias(addr).unwrap_or(addr)
    } else {
        addr
    }
}

/// Replay: the pages belong to somebody else, or to this process again.
pub fn replay_closed(range: Range<u64>, closed: bool) {
    if closed {
        state().closed.insert(range);
    } else {
        state().closed.remove(range);
    }
}

/// Whether any page of the range is closed.
pub fn is_closed(range: &Range<u64>) -> bool {
    let closed = &state().closed;
    !closed.is_empty() && !closed.inside(range).is_empty()
}

/// Takes access away again where pages are closed, after something was done to the real mapping.
pub fn close_again(range: Range<u64>) {
    for part in state().closed.inside(&range) {
        let _ = host::mprotect(part, libc::PROT_NONE);
    }
}

fn pages(range: &Range<u64>) -> Pages {
    Pages {
        start: range.start,
        end: range.end,
    }
}

fn kick(pid: i32, tid: i32) {
    hub::kick_other(pid, tid);
}

fn late(pid: i32) {
    stop::warn(&format!(
        "waiting for process {pid}, which uses shared memory and doesn't give it up (stopped?)"
    ));
}

fn read_page(addr: u64) -> Option<Shadow> {
    let mut page: Shadow = Box::new([0; PAGE as usize]);
    // SAFETY: a guest page into a buffer of its size; a fault makes the copy fail.
    unsafe { copy::copy(page.as_mut_ptr(), addr as *const u8, PAGE as usize) }.then_some(page)
}

impl State {
    fn taking_part(&self) -> bool {
        self.governs || !self.used.is_empty()
    }

    fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = &View> {
        let range = range.clone();
        self.views
            .iter()
            .filter(move |v| v.start < range.end && range.start < v.end)
    }

    fn view(&self, addr: u64) -> Option<View> {
        self.overlapping(&(addr..addr + 1)).next().copied()
    }

    /// Where a page of an object is mapped here.
    fn places(&self, name: u64, page: u64) -> Vec<View> {
        let at = page * PAGE;
        let has = |v: &&View| {
            v.name == name && v.offset <= at && at < v.offset.saturating_add(v.end - v.start)
        };
        let one = |v: &View| {
            let start = v.start + (at - v.offset);
            v.slice(start, start + PAGE)
        };
        self.views.iter().filter(has).map(one).collect()
    }

    fn join(&mut self, object: &Object) -> bool {
        let name = sharing::name(object);
        let Some(sharing) = &self.sharing else {
            return false;
        };
        if matches!(object, Object::Anon(_)) {
            return false;
        }
        self.used.insert(name);
        let others = sharing.use_object(name, &kick);
        self.collect();
        others
    }

    fn add(&mut self, range: Range<u64>, object: Object, offset: u64, prot: i32) -> bool {
        if self.sharing.is_none() {
            return false;
        }
        let name = sharing::name(&object);
        let others = self.join(&object);
        // Anonymous memory is never mapped again, but what a process has of a governed object is governed.
        let governed = prot & libc::PROT_EXEC == 0
            && (others || self.views.iter().any(|v| v.name == name && v.governed));
        let view = View {
            start: range.start,
            end: range.end,
            name,
            offset,
            prot,
            governed,
            known: !governed,
        };
        self.views.push(view);
        if governed {
            self.close_view(range);
        }
        governed
    }

    fn close_view(&mut self, range: Range<u64>) {
        self.governs = true;
        close_really(range.clone());
        self.closed.insert(range);
    }

    fn cut(&mut self, range: &Range<u64>) {
        self.closed.remove(range.clone());
        let mut left = Vec::new();
        for view in std::mem::take(&mut self.views) {
            if view.end <= range.start || range.end <= view.start {
                left.push(view);
                continue;
            }
            if view.start < range.start {
                left.push(view.slice(view.start, range.start));
            }
            if range.end < view.end {
                left.push(view.slice(range.end, view.end));
            }
        }
        self.views = left;
        let gone: Vec<u64> = self
            .used
            .iter()
            .filter(|&&name| !self.views.iter().any(|v| v.name == name))
            .copied()
            .collect();
        for name in gone {
            self.used.remove(&name);
            let entries: Vec<Entry> = self.held_of(name);
            if let Some(sharing) = &self.sharing {
                sharing.leave_object(name);
                sharing.release(&entries);
            }
            for entry in entries {
                self.held.remove(&entry);
                self.shadows.remove(&entry);
            }
            self.aliases.retain(|&(object, _), &mut at| {
                if object == name {
                    // SAFETY: a mapping of our own that nobody knows.
                    unsafe { syscall!(libc::SYS_munmap, at, PAGE) };
                }
                object != name
            });
        }
    }

    fn held_of(&self, name: u64) -> Vec<Entry> {
        let of = self.held.iter().filter(|(_, (object, _))| *object == name);
        of.map(|(&entry, _)| entry).collect()
    }

    fn protected(&mut self, range: &Range<u64>, prot: i32) {
        let mut parts = Vec::new();
        for view in &mut self.views {
            if view.end <= range.start || range.end <= view.start {
                continue;
            }
            let whole = *view;
            let (start, end) = (whole.start.max(range.start), whole.end.min(range.end));
            *view = whole.slice(start, end);
            view.prot = prot;
            if whole.start < start {
                parts.push(whole.slice(whole.start, start));
            }
            if end < whole.end {
                parts.push(whole.slice(end, whole.end));
            }
        }
        self.views.extend(parts);
    }

    /// Whether the guest's own protection allows an access.
    fn may(&self, addr: u64, write: bool) -> bool {
        let needed = if write {
            libc::PROT_WRITE
        } else {
            libc::PROT_READ | libc::PROT_WRITE
        };
        self.view(addr).is_some_and(|view| view.prot & needed != 0)
    }

    fn touch(&mut self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        let mut any = false;
        for part in self.closed.inside(&(page_down(addr)..end)) {
            for page in (page_down(part.start)..part.end).step_by(PAGE as usize) {
                if self.closed.contains(page)
                    && let Some(view) = self.view(page).filter(View::readable)
                {
                    self.acquire(&view, page);
                    any = true;
                }
            }
        }
        any
    }

    fn acquire(&mut self, view: &View, addr: u64) {
        let page = view.page_of(addr);
        let Some(sharing) = &self.sharing else { return };
        let Some(entry) = sharing.page(view.name, page) else {
            stop::warn("more memory is shared between processes than can be recorded (4 GiB)");
            stop::exit(stop::STATUS)
        };
        let before = self.shadows.remove(&entry);
        let mut first = false;
        if !self.held.contains_key(&entry) {
            if let Some(was_first) = sharing.try_acquire(entry) {
                first = was_first;
            } else {
                self.remember();
                if let Some(sharing) = &self.sharing {
                    first = sharing.acquire(entry, &kick, &late);
                }
            }
            self.held.insert(entry, (view.name, page));
            self.recent.retain(|&other| other != entry);
            if self.recent.len() == REMEMBERED {
                self.recent.remove(0);
            }
            self.recent.push(entry);
            self.collect();
        }
        let places = self.places(view.name, page);
        for place in &places {
            let range = place.start..place.end;
            let _ = host::mprotect(range.clone(), real_prot(place.prot));
            self.closed.remove(range.clone());
            self.records
                .push(Record::Change(Change::Open(pages(&range))));
        }
        let place = places.iter().find(|place| place.readable());
        let Some((place, now)) = place.and_then(|p| Some((p, read_page(p.start)?))) else {
            return;
        };
        match before {
            Some(before) => self.differences(place.start, &before, &now),
            None if first && view.known => {}
            None => self
                .records
                .push(Record::Contents(place.start, now.to_vec())),
        }
    }

    /// Writes down what differs.
    fn differences(&mut self, addr: u64, before: &Shadow, now: &Shadow) {
        let mut at = 0;
        let differs = |at: usize| before[at] != now[at];
        while let Some(start) = (at..now.len()).find(|&n| differs(n)) {
            let mut end = start + 1;
            while let Some(next) = (end..now.len().min(end + GAP)).find(|&n| differs(n)) {
                end = next + 1;
            }
            let contents = now[start..end].to_vec();
            self.records
                .push(Record::Contents(addr + start as u64, contents));
            at = end;
        }
    }

    /// Pages may be taken from here on: keeps what is in those used last.
    fn remember(&mut self) {
        for n in 0..self.recent.len() {
            let entry = self.recent[n];
            if let Some(&(name, page)) = self.held.get(&entry) {
                self.keep_shadow(entry, name, page);
            }
        }
    }

    fn keep_shadow(&mut self, entry: Entry, name: u64, page: u64) {
        let places = self.places(name, page);
        let place = places.iter().find(|place| place.readable());
        match place.and_then(|place| read_page(place.start)) {
            Some(shadow) => self.shadows.insert(entry, shadow),
            None => self.shadows.remove(&entry),
        };
    }

    /// Reads what others have left: pages that were taken are closed.
    fn collect(&mut self) {
        let Some(sharing) = &self.sharing else { return };
        let mut letters = Vec::new();
        if sharing.wanted() {
            let (some, more) = sharing.letters();
            letters = some;
            if more {
                letters = self.held.keys().copied().collect();
            }
        }
        let mut lost = Vec::new();
        for entry in letters {
            if !self.held.contains_key(&entry) {
                continue;
            }
            if !sharing.owns(entry) {
                lost.push(entry);
            } else if !self.asked.contains(&entry) {
                self.asked.push(entry);
            }
        }
        for entry in lost {
            self.close(entry);
        }
        // What is still ours may change from here on.
        for entry in &self.recent {
            if self.held.contains_key(entry) {
                self.shadows.remove(entry);
            }
        }
    }

    /// A page that is no longer this process's.
    fn close(&mut self, entry: Entry) {
        let Some((name, page)) = self.held.remove(&entry) else {
            return;
        };
        self.recent.retain(|&other| other != entry);
        for place in self.places(name, page) {
            let range = place.start..place.end;
            close_really(range.clone());
            self.closed.insert(range.clone());
            let change = Change::Close(pages(&range));
            self.records.push(Record::Change(change));
        }
    }

    fn serve(&mut self) {
        self.collect();
        let asked = std::mem::take(&mut self.asked);
        for &entry in &asked {
            if let Some(&(name, page)) = self.held.get(&entry) {
                self.keep_shadow(entry, name, page);
                self.close(entry);
            }
        }
        if let Some(sharing) = &self.sharing
            && !asked.is_empty()
        {
            sharing.release(&asked);
        }
        self.govern_wanted();
    }

    fn govern_wanted(&mut self) {
        let Some(sharing) = &self.sharing else { return };
        for name in sharing.to_govern() {
            self.govern(Some(name));
            if let Some(sharing) = &self.sharing {
                sharing.governed(name);
            }
        }
    }

    /// From now on pages of the object (or of all) are closed unless they are this process's.
    fn govern(&mut self, name: Option<u64>) {
        let wanted = |v: &View| {
            !v.governed && v.prot & libc::PROT_EXEC == 0 && name.is_none_or(|name| v.name == name)
        };
        let mut ranges = Vec::new();
        for view in self.views.iter_mut().filter(|v| wanted(v)) {
            view.governed = true;
            ranges.push(view.start..view.end);
        }
        for range in ranges {
            self.close_view(range.clone());
            let change = Change::Close(pages(&range));
            self.records.push(Record::Change(change));
        }
    }

    fn before_fork(&mut self) -> Vec<Range<u64>> {
        if self.views.is_empty() {
            return Vec::new();
        }
        self.govern(None);
        for name in self.used.clone() {
            if let Some(sharing) = &self.sharing {
                sharing.governed(name);
            }
        }
        let code = self.views.iter().filter(|v| !v.governed);
        code.map(|v| v.start..v.end).collect()
    }

    fn become_child(&mut self, stream: u32) {
        self.records.clear();
        self.asked.clear();
        let Some(sharing) = &mut self.sharing else {
            return;
        };
        if sharing.become_stream(stream).is_err() {
            self.sharing = None;
            return;
        }
        // The parent's pages stay the parent's, and go on changing.
        let held: Vec<Entry> = self.held.keys().copied().collect();
        for entry in held {
            self.close(entry);
            self.shadows.remove(&entry);
        }
        for name in self.used.clone() {
            if let Some(sharing) = &self.sharing {
                sharing.use_object(name, &kick);
                sharing.governed(name);
            }
        }
        self.collect();
    }

    fn alias(&mut self, addr: u64) -> Option<u64> {
        let view = self.view(addr).filter(|view| view.governed)?;
        let key = (view.name, view.page_of(addr));
        let at = match self.aliases.get(&key) {
            Some(&at) => at,
            None => {
                // A length of zero makes a second mapping of shared memory.
                let (page, may_move) = (page_down(addr), libc::MREMAP_MAYMOVE);
                // SAFETY: a new mapping where the kernel likes.
                let at = unsafe { syscall!(libc::SYS_mremap, page, 0, PAGE, may_move) };
                if crate::sys::is_err(at) {
                    return None;
                }
                let both = libc::PROT_READ | libc::PROT_WRITE;
                for prot in [both, libc::PROT_READ] {
                    // SAFETY: the mapping just made.
                    if unsafe { syscall!(libc::SYS_mprotect, at, PAGE, prot) } == 0 {
                        break;
                    }
                }
                self.aliases.insert(key, at as u64);
                at as u64
            }
        };
        Some(at + addr % PAGE)
    }
}

fn close_really(range: Range<u64>) {
    if host::mprotect(range, libc::PROT_NONE).is_err() {
        // It would go on unseen.
        stop::warn("shared memory can't be protected: it can't be recorded");
        stop::exit(stop::STATUS);
    }
}
