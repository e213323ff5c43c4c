//! Memory that recorded processes share: whose it is, page by page.
//!
//! In: the shared mappings of this process, its accesses to them, and what other recorded processes ask
//! for. Out: [`News`] for the log: pages that became this process's, with what others have done to
//! them, and pages that it gave away.
//!
//! Shared memory that only one process has is left alone. As soon as another one may have it too (after a fork,
//! or when both map the same file or segment) it is *governed*: a page belongs to one process at a time
//! ([`Sharing`]), and everybody else has it *closed*, without any real access. A touch of a closed page is
//! an event: the process waits until the page is its own, and what differs from when it last had it is
//! written down. A replay has the same pages closed at the same times, so the same instruction stops there.
//!
//! A page is given away at places that can be found again: at the end of a budget, and after an event. One who
//! waits, in the kernel or for others, is *away*: its pages may be taken meanwhile ([`sharing`]).
//!
//! The state is the process's, not [`super::Memory`]'s, since every access to guest memory can come to a closed page.

pub mod code;
mod counts;
mod pages;

use std::ops::Range;
use std::time::Duration;

use clew_recording::maps::{Change, Object, Pages};
use clew_recording::sharing::{
    self, Contents, Entry, Hold, Look, Lost, NotYet, PageOf, Sharing, Wanted,
};
use rustc_hash::{FxHashMap, FxHashSet};

use self::counts::Counts;
use super::host::{self, real_prot};
use super::mapping::{PAGE, page_down};
use super::ranges::Ranges;
use crate::host::copy;
use crate::host::hub;
use crate::kernel::stop;
use crate::syscall;

/// For the log.
pub enum News<'a> {
    Change(&'a Change),
    /// What is in memory now.
    Contents(u64, &'a [u8]),
}

enum Record {
    Change(Change),
    /// So many of the words that are kept beside.
    Contents(u64, usize),
}

/// What there is for the log, in order.
#[derive(Default)]
struct Records {
    list: Vec<Record>,
    words: Vec<u64>,
}

impl Records {
    fn change(&mut self, change: Change) {
        self.list.push(Record::Change(change));
    }

    /// What is new in the page at `place`.
    fn contents(&mut self, place: u64, now: &Contents, words: Range<usize>) {
        let addr = place + 8 * words.start as u64;
        self.list.push(Record::Contents(addr, words.len()));
        self.words.extend_from_slice(&now[words]);
    }
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
    /// Of an object that this process hasn't mapped.
    fn unmapped(name: u64) -> View {
        View {
            start: 0,
            end: 0,
            name,
            offset: 0,
            prot: libc::PROT_NONE,
            governed: true,
            known: true,
        }
    }

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

struct State {
    sharing: Option<Sharing>,
    views: Vec<View>,
    closed: Ranges,
    /// Pages that are this process's, and which versions of others its replay has.
    hold: Hold,
    used: FxHashSet<u64>,
    /// An object that is about to be mapped, and whether that mapping is governed.
    promised: Option<(u64, bool)>,
    /// How long objects are, as a replay knows it.
    sizes: FxHashMap<u64, (Object, u64)>,
    /// Second mappings of single pages, always accessible: for the kernel's futexes.
    aliases: FxHashMap<(u64, u64), u64>,
    records: Records,
    counts: Counts,
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
        hold: Hold::default(),
        used: FxHashSet::default(),
        promised: None,
        sizes: FxHashMap::default(),
        aliases: FxHashMap::default(),
        records: Records::default(),
        counts: Counts::default(),
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
    !state().records.list.is_empty()
}

/// Hands over what there is for the log: changes of mappings, and what is new in memory.
pub fn tell(tell: &mut dyn FnMut(News)) {
    // There are some for each turn: their room is used again.
    let mut records = std::mem::take(&mut state().records);
    let mut words = records.words.as_slice();
    for record in &records.list {
        match record {
            Record::Change(change) => tell(News::Change(change)),
            Record::Contents(addr, len) => {
                let (these, rest) = words.split_at(*len);
                words = rest;
                tell(News::Contents(*addr, bytes(these)));
            }
        }
    }
    records.list.clear();
    records.words.clear();
    let now = &mut state().records;
    if now.list.is_empty() {
        *now = records;
    }
}

/// How often pages changed hands, in words, if they did.
pub fn counts() -> Option<String> {
    state().counts.line()
}

/// A number for new shared anonymous memory.
pub fn new_object() -> Option<u64> {
    state().sharing.as_ref().map(Sharing::new_object)
}

/// Whether others have the object; asked before it is mapped.
pub fn is_used_by_others(object: &Object) -> bool {
    state().ask(object)
}

/// A shared mapping was made. True if it is closed, which is then to be written down.
pub fn add(range: Range<u64>, object: Object, offset: u64, size: u64, prot: i32) -> bool {
    let state = state();
    state.sizes.insert(sharing::name(&object), (object, size));
    state.add(range, object, offset, prot)
}

/// The size of an object has changed, and is written down.
pub fn resized(object: Object, size: u64) {
    let name = sharing::name(&object);
    if let Some(known) = state().sizes.get_mut(&name) {
        known.1 = size;
    }
}

/// Whether any process has mapped a file or segment shared.
#[inline]
pub fn anybody() -> bool {
    state().sharing.as_ref().is_some_and(Sharing::anybody)
}

/// Before this process writes to a part of a file by a system call: if others have mapped it, its pages
/// become this process's.
pub fn own_file(object: &Object, range: Range<u64>) {
    if !range.is_empty() {
        state().own_file(object, range.start / PAGE..range.end.div_ceil(PAGE));
    }
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

/// All shared memory becomes this process's, at the same time, as far as it can be accessed.
pub fn acquire_everything() {
    let views = state().views.iter().filter(|view| view.governed);
    let ranges: Vec<(u64, u64)> = views.map(|v| (v.start, v.end - v.start)).collect();
    acquire_all(&ranges);
}

/// Where shared memory is mapped: of which object, from which offset, and how long that is.
pub fn shown() -> Vec<(Range<u64>, Object, u64, u64)> {
    let state = state();
    let shown = state.views.iter().filter_map(|view| {
        let (object, size) = state.sizes.get(&view.name)?;
        Some((view.start..view.end, *object, view.offset, *size))
    });
    shown.collect()
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
    sharing
        .is_some_and(|sharing| sharing.wanted() || state.hold.is_asked() && sharing.stint_is_over())
}

/// Gives away what others have asked for. The guest stands at a place that can be found again.
pub fn serve() {
    state().serve();
}

/// The process is about to wait in the kernel and doesn't touch guest memory until [`unpark`].
pub fn park() {
    let state = state();
    if state.taking_part()
        && let Some(sharing) = &state.sharing
    {
        sharing.park();
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
        state.come_back(true);
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

/// In a forked child that takes no part in the recording: its memory is its own affair. Does it share any?
pub fn isnt_recorded() -> bool {
    state().isnt_recorded()
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

/// All that is closed.
pub fn closed() -> Vec<Range<u64>> {
    state().closed.iter().collect()
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

fn full() -> ! {
    stop::warn("more memory is shared between processes than can be recorded (4 GiB)");
    stop::exit(stop::STATUS)
}

/// Says for whom this process waits, if that one is stopped or has taken a minute: on a busy machine some seconds are nothing.
fn late(pid: Option<i32>, waited: Duration) -> bool {
    let stopped = pid.is_some_and(is_stopped);
    if !stopped && waited < Duration::from_secs(60) {
        return false;
    }
    let who = pid.map_or_else(
        || "a process of another pid namespace".to_owned(),
        |pid| format!("process {pid}"),
    );
    let why = if stopped { ": it is stopped" } else { "" };
    stop::warn(&format!(
        "waiting for {who}, which uses shared memory and doesn't give it up{why}"
    ));
    true
}

fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in brackets and may have brackets in it.
    let after = stat.iter().rposition(|&byte| byte == b')');
    let state = after.and_then(|at| stat.get(at + 2));
    state.is_some_and(|state| b"Tt".contains(state))
}

fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any memory of words is memory of bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

fn close_really(range: Range<u64>) {
    if host::mprotect(range, libc::PROT_NONE).is_err() {
        // It would go on unseen.
        stop::warn("shared memory can't be protected: it can't be recorded");
        stop::exit(stop::STATUS);
    }
}
