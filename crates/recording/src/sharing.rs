//! Who may touch a page of memory that recorded processes share.
//!
//! In: processes that map shared memory, and ask for its pages. Out: each page belongs to one process at
//! a time; whoever wants it waits until its owner gives it up, at a place that its recording knows.
//!
//! The table lies behind the rings of the [`Channel`], so every recorded process has it. Pages are known by
//! what they are a page of, not by address. Who gets what, and when, is in [`rules`]; here is the lock, and waiting.
//!
//! An owner keeps its pages until somebody asks, and for a *stint* even then: processes that use the same pages
//! run one after the other, each long enough that most of its time goes into its work. One whose stint is over gives
//! up what it is asked for and steps aside, for a stint: as it is away meanwhile, all its pages can be
//! taken without asking for each.

mod hold;
#[cfg(test)]
mod model;
mod rules;

use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::channel::Channel;
use crate::event::StreamId;
use crate::futex;
use crate::maps::Object;
use crate::shared::{self, MOST_SLOTS, PAGE, state};

pub use hold::{Hold, Letter, Lost, PageOf};
use rules::{LETTERS, Member, Page, Rules, Taken, Use, Waits, Who};

/// Pages that can be owned: 4 GiB of shared memory.
const PAGES: usize = 1 << 20;
const USES: usize = 8192;
/// A process that has come back isn't disturbed for so long, in units of 1024 cycles: about 400 µs.
const STINT: u32 = 1000;
/// So long one waits for all that it wants to regain: about 20 ms.
const PATIENCE: u32 = 50 * STINT;
const LONG_WAIT: Duration = Duration::from_millis(1);
/// Set in the lock's word while somebody waits for it.
const CONTENDED: u32 = 1 << 31;

#[repr(C)]
pub(crate) struct Table {
    lock: AtomicU32,
    /// Changes whenever a page or a process becomes free.
    news: AtomicU32,
    /// How many wait for news, or have died doing so.
    waiters: AtomicU32,
    objects: AtomicU64,
    uses_end: AtomicU32,
    uses: [Use; USES],
    members: [Member; MOST_SLOTS],
    pages: [Page; PAGES],
}

/// The size of the table in the channel's file.
pub(crate) const SIZE: usize = size_of::<Table>().next_multiple_of(PAGE);

/// The size of the copies of pages that were taken from one process; behind the table there is room for each slot's.
pub(crate) const COPIES: usize = LETTERS * PAGE;

/// What is in a page, in words: compared with the CPU's vectors, where libc's `memcmp` takes byte by byte.
pub type Contents = [u64; PAGE / 8];

/// Reads a page of this process, whether or not it may use it; false if it can't be read.
pub type Read<'a> = &'a dyn Fn(PageOf, &mut Contents) -> bool;

/// A page's place in the table.
pub type Entry = u32;

/// The table as one process uses it.
pub struct Sharing {
    table: &'static Table,
    /// The copies of all processes, once they are needed.
    copies: AtomicPtr<[Contents; LETTERS]>,
    channel: Channel,
    stream: StreamId,
    index: usize,
}

/// A number for an object, never 0.
pub fn name(object: &Object) -> u64 {
    let words = match *object {
        Object::Anon(number) => [1, number, 0],
        Object::Segment(id) => [2, id, 0],
        Object::File { dev, ino } => [3, dev, ino],
    };
    let mut sum = 0x9e37_79b9_7f4a_7c15u64;
    for word in words {
        sum = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^= sum >> 32;
    }
    sum | 1
}

fn cycles() -> u32 {
    // SAFETY: reads the time-stamp counter.
    (unsafe { std::arch::x86_64::_rdtsc() } >> 10) as u32
}

struct Locked<'a>(&'a Table);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.0.lock.swap(0, Release) & CONTENDED != 0 {
            futex::wake(&self.0.lock);
        }
    }
}

impl Sharing {
    /// The calling process takes part, as the one that writes `stream`.
    pub fn join(channel: &Channel, stream: StreamId) -> io::Result<Sharing> {
        let at = channel.sharing_offset();
        let table = shared::map(std::ptr::null_mut(), SIZE, channel.fd(), at)?;
        // SAFETY: mapped for good, as long as the table, made of atomic numbers only.
        let table = unsafe { &*table.cast::<Table>() };
        let mut sharing = Sharing {
            table,
            copies: AtomicPtr::default(),
            channel: *channel,
            stream,
            index: 0,
        };
        sharing.become_stream(stream)?;
        Ok(sharing)
    }

    /// In a forked child: it is another one now, and owns nothing.
    pub fn become_stream(&mut self, stream: StreamId) -> io::Result<()> {
        let (index, _) = self.channel.find(stream).ok_or(io::ErrorKind::BrokenPipe)?;
        self.stream = stream;
        self.index = index;
        let _locked = self.lock();
        let me = self.me();
        me.doing.store(rules::doing::RUNS, Relaxed);
        me.waits_for.store(0, Relaxed);
        me.since.store(cycles(), Relaxed);
        me.wanted.store(0, Relaxed);
        me.overflow.store(0, Relaxed);
        me.count.store(0, Relaxed);
        me.pid.store(shared::pid(), Relaxed);
        me.tid.store(futex::tid() as i32, Relaxed);
        Ok(())
    }

    /// The kernel thread that calls runs the guest from now on.
    pub fn on_this_thread(&self) {
        let _locked = self.lock();
        self.me().pid.store(shared::pid(), Relaxed);
        self.me().tid.store(futex::tid() as i32, Relaxed);
    }

    /// A number for new shared memory, which nobody else has.
    pub fn new_object(&self) -> u64 {
        self.table.objects.fetch_add(1, Relaxed) + 1
    }

    fn me(&self) -> &'static Member {
        &self.table.members[self.index]
    }

    fn lock(&self) -> Locked<'static> {
        let table = self.table;
        let me = futex::tid();
        for _ in 0..100 {
            if table.lock.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
                return Locked(table);
            }
            std::hint::spin_loop();
        }
        let mut suspect = 0;
        loop {
            let seen = table.lock.fetch_or(CONTENDED, Relaxed);
            let holder = seen & !CONTENDED;
            if holder == 0 || holder == suspect && is_gone(holder) {
                let now = seen | CONTENDED;
                let mine = me | CONTENDED;
                if table
                    .lock
                    .compare_exchange(now, mine, Acquire, Relaxed)
                    .is_ok()
                {
                    return Locked(table);
                }
                continue;
            }
            suspect = holder;
            futex::wait(&table.lock, seen | CONTENDED, Some(LONG_WAIT));
        }
    }

    /// Makes a step, under the lock.
    fn step<T>(&self, step: impl FnOnce(&Rules, Who) -> T) -> T {
        let _locked = self.lock();
        self.step_locked(step)
    }

    fn step_locked<T>(&self, step: impl FnOnce(&Rules, Who) -> T) -> T {
        let living = |stream| {
            let (index, slot) = self.channel.find(stream)?;
            let owned = slot.owner.load(SeqCst) & futex::OWNER != 0;
            (owned && slot.state.load(SeqCst) == state::LIVE).then_some(index)
        };
        let rules = Rules {
            uses: &self.table.uses,
            uses_end: &self.table.uses_end,
            members: &self.table.members,
            pages: &self.table.pages,
            living: &living,
        };
        let who = Who {
            stream: self.stream,
            index: self.index,
        };
        step(&rules, who)
    }

    /// The entry of a page; `None` if the table is full.
    pub fn page(&self, object: u64, page: u64) -> Option<Entry> {
        let key = object.wrapping_add(page.wrapping_mul(0xd6e8_feb8_6659_fd93)) | 1;
        let first = (object >> 16).wrapping_add(page) as usize;
        let _locked = self.lock();
        for probe in 0..PAGES {
            let at = (first + probe) % PAGES;
            let found = self.table.pages[at].key.load(Relaxed);
            if found == key {
                return Some(at as Entry);
            }
            if found == 0 {
                self.table.pages[at].key.store(key, Relaxed);
                return Some(at as Entry);
            }
        }
        None
    }

    pub fn owns(&self, entry: Entry) -> bool {
        self.table.pages[entry as usize].owner.load(Acquire) == self.stream
    }

    /// The copies of the process in a slot; `None` if they can't be mapped.
    fn copies_of(&self, index: usize) -> Option<*mut [Contents; LETTERS]> {
        if self.copies.load(Relaxed).is_null() {
            let slots = self.channel.control().slots as usize;
            let at = self.channel.sharing_offset() + SIZE;
            let place = shared::map(std::ptr::null_mut(), slots * COPIES, self.channel.fd(), at);
            self.copies.store(place.ok()?.cast(), Relaxed);
        }
        // SAFETY: mapped for all slots, for good.
        Some(unsafe { self.copies.load(Relaxed).add(index) })
    }

    /// What was in a page when it was taken, by where the letter about it is. Good until this process is away again.
    pub fn copy(&self, letter: usize) -> Option<&Contents> {
        let copies = self.copies_of(self.index)?;
        // SAFETY: mapped for good; only who takes a page from this process writes there, and it isn't away.
        unsafe { (*copies).get(letter) }
    }

    /// A page was taken: copies it for whom it was taken from. Under the lock.
    fn copy_for(
        &self,
        rules: &Rules,
        taken: &Taken,
        page: PageOf,
        read: Read,
    ) -> Option<&Contents> {
        let (index, letter) = taken.from?;
        // SAFETY: mapped for good; its process is away, and all others want the lock for this.
        let copy = unsafe { &mut (*self.copies_of(index)?)[letter] };
        read(page, copy).then(|| {
            rules.copied((index, letter));
            &*copy
        })
    }

    /// Takes a page if its owner doesn't use it. True if nobody has ever owned it.
    pub fn try_acquire(&self, entry: Entry, page: PageOf, read: Read) -> Option<bool> {
        self.step(|rules, me| {
            let taken = rules.take(me, entry).ok()?;
            self.copy_for(rules, &taken, page, read);
            Some(taken.first)
        })
    }

    /// Waits until the page is ours; meanwhile this process is away. True if nobody has ever owned it. `kick` makes a
    /// process's thread look up from its work; `late` is called, once, when it takes very long, with the owner's pid.
    pub fn acquire(
        &self,
        entry: Entry,
        page: PageOf,
        read: Read,
        kick: &dyn Fn(i32, i32),
        late: &dyn Fn(i32),
    ) -> bool {
        let begin = shared::now();
        let mut told = false;
        loop {
            let locked = self.lock();
            let step = |rules: &Rules, me| {
                let taken = rules.take_or_wait(me, entry)?;
                self.copy_for(rules, &taken, page, read);
                Ok(taken.first)
            };
            let waits: Waits = match self.step_locked(step) {
                Ok(first) => {
                    self.me().since.store(cycles(), Relaxed);
                    return first;
                }
                Err(waits) => waits,
            };
            let pid = self.table.members[waits.owner].pid.load(Relaxed);
            self.wait_for(locked, waits, kick);
            if !told && shared::now().saturating_sub(begin) > 5_000_000_000 {
                told = true;
                late(pid);
            }
        }
    }

    /// Waits for the owner of a page to give it up, or to be away.
    fn wait_for(&self, locked: Locked, waits: Waits, kick: &dyn Fn(i32, i32)) {
        if waits.tell {
            self.tell();
        }
        let owner = &self.table.members[waits.owner];
        let wait = match left_of(owner) {
            Some(left) => left,
            // It has been given the page, and comes for it.
            None if owner.doing.load(Relaxed) != rules::doing::RUNS => LONG_WAIT,
            None => {
                // Under the lock: it takes the lock to move to another thread, or to leave.
                kick(owner.pid.load(Relaxed), owner.tid.load(Relaxed));
                LONG_WAIT
            }
        };
        self.wait_locked(locked, wait);
    }

    /// Waits for news, without the lock.
    fn wait_locked(&self, locked: Locked, time: Duration) {
        let seen = self.table.news.load(Relaxed);
        self.table.waiters.fetch_add(1, SeqCst);
        drop(locked);
        futex::wait(&self.table.news, seen, Some(time));
        self.table.waiters.fetch_sub(1, SeqCst);
    }

    /// The process goes on. It has lost pages; those that it will want again at once are regained if they can be had. It
    /// waits for them, away, if it may; not for long. Of most that are regained `compare` sees what was in them and what is now,
    /// under the lock.
    pub fn come_back<C>(
        &self,
        hold: &mut Hold<C>,
        may_wait: bool,
        kick: &dyn Fn(i32, i32),
        read: Read,
        compare: &mut dyn FnMut(PageOf, &Contents, &Contents),
    ) -> Back {
        let begin = cycles();
        loop {
            let locked = self.lock();
            let mut back = Back::default();
            if self.wanted() {
                let (mut letters, more) = self.step_locked(|rules, me| rules.letters(me));
                if more {
                    let all = hold.all().into_iter();
                    let lost = all.filter(|&entry| !self.owns(entry) && !told(&letters, entry));
                    let lost: Vec<Entry> = lost.collect();
                    letters.extend(lost.iter().map(|&entry| Letter::Taken((entry, None))));
                }
                back.lost = hold.read(letters);
            }
            let wanted = hold.to_regain(&back.lost);
            if may_wait
                && cycles().wrapping_sub(begin) < PATIENCE
                && let Some(waits) = self.step_locked(|rules, me| rules.busy(me, &wanted))
            {
                self.wait_for(locked, waits, kick);
                continue;
            }
            let mut compared = Vec::new();
            self.step_locked(|rules, me| {
                for (taken, letter) in rules.regain(me, &wanted) {
                    hold.regained(taken.entry);
                    // What the one whom it is taken from gets is what is there now.
                    if let (Some(page), Some(before)) = (hold.get(taken.entry), self.copy(letter))
                        && let Some(now) = self.copy_for(rules, &taken, page, read)
                    {
                        compare(page, before, now);
                        compared.push(taken.entry);
                    }
                }
            });
            self.me().since.store(cycles(), Relaxed);
            compared.sort_unstable();
            back.lost
                .retain(|(entry, _)| compared.binary_search(entry).is_err());
            let is_back = |&(entry, _): &Lost| self.owns(entry);
            (back.regained, back.lost) = back.lost.into_iter().partition(is_back);
            return back;
        }
    }

    /// Gives pages up: to who has asked first, or to nobody.
    pub fn release(&self, entries: &[Entry]) {
        self.step(|rules, me| {
            for &entry in entries {
                rules.release(me, entry);
            }
        });
        self.tell();
    }

    /// Gives pages up and is away while those who have asked for them run, for a stint or two; it stays away.
    pub fn step_aside(&self, entries: &[Entry]) {
        let mut locked = self.lock();
        let takers: Vec<(usize, Entry)> = self.step_locked(|rules, me| {
            let taker = |&entry: &Entry| Some((rules.release(me, entry)?, entry));
            let takers = entries.iter().filter_map(taker).collect();
            rules.away(me, None);
            takers
        });
        self.tell();
        let begin = cycles();
        loop {
            let busy = takers.iter().any(|&(taker, entry)| {
                let taker = &self.table.members[taker];
                // It comes for the page as soon as it wakes.
                taker.waits_for.load(Relaxed) == entry + 1
                    || taker.doing.load(Relaxed) == rules::doing::RUNS && left_of(taker).is_some()
            });
            let used = cycles().wrapping_sub(begin);
            if !busy || used >= 2 * STINT {
                break;
            }
            self.wait_locked(locked, time_of(STINT));
            locked = self.lock();
        }
    }

    fn tell(&self) {
        self.table.news.fetch_add(1, SeqCst);
        if self.table.waiters.load(SeqCst) != 0 {
            futex::wake(&self.table.news);
        }
    }

    /// Does anybody want anything?
    #[inline]
    pub fn wanted(&self) -> bool {
        self.me().wanted.load(Relaxed) != 0
    }

    /// Has this process run so long that others may have its pages?
    #[inline]
    pub fn stint_is_over(&self) -> bool {
        left_of(self.me()).is_none()
    }

    /// Reads letters while the process runs, when all of them ask for pages.
    pub fn read_letters<C>(&self, hold: &mut Hold<C>) {
        self.step(|rules, me| {
            let (letters, _) = rules.letters(me);
            hold.read(letters);
            rules.regain(me, &[]);
        });
    }

    /// The process is about to wait in the kernel; until [`Self::come_back`] its pages can be taken.
    pub fn park(&self) {
        if self.step(|rules, me| rules.away(me, None)) {
            self.tell();
        }
    }

    pub fn is_parked(&self) -> bool {
        self.me().doing.load(Relaxed) == rules::doing::AWAY
    }

    /// The process maps (or writes to) an object. True if others have it too: then their pages are closed
    /// unless owned when this returns, and so must this process's be.
    pub fn use_object(&self, object: u64, kick: &dyn Fn(i32, i32)) -> Result<bool, NotYet> {
        let _locked = self.lock();
        let joined = self.step_locked(|rules, me| rules.use_object(me, object));
        let joined = joined.ok_or(NotYet::Full)?;
        for &index in &joined.wait_for {
            let member = &self.table.members[index];
            kick(member.pid.load(Relaxed), member.tid.load(Relaxed));
        }
        if joined.wait_for.is_empty() {
            Ok(joined.others)
        } else {
            Err(NotYet::Wait(self.table.news.load(Relaxed)))
        }
    }

    /// Waits for others, away meanwhile and afterwards; `seen` is from [`NotYet::Wait`].
    pub fn wait(&self, seen: u32) {
        self.park();
        self.table.waiters.fetch_add(1, SeqCst);
        futex::wait(&self.table.news, seen, Some(LONG_WAIT));
        self.table.waiters.fetch_sub(1, SeqCst);
    }

    /// Has any process mapped a file or segment shared, since the recording began?
    #[inline]
    pub fn anybody(&self) -> bool {
        self.table.uses_end.load(Relaxed) != 0
    }

    /// Does another process use the object?
    pub fn is_used_by_others(&self, object: u64) -> bool {
        self.step(|rules, me| rules.is_used_by_others(me, object))
    }

    /// The process has nothing of the object any more.
    pub fn leave_object(&self, object: u64) {
        self.step(|rules, me| rules.leave_object(me, object));
    }

    /// Objects that another process has begun to use as well.
    pub fn to_govern(&self) -> Vec<u64> {
        self.step(|rules, me| rules.to_govern(me))
    }

    /// The object's pages are closed here.
    pub fn governed(&self, object: u64) {
        self.step(|rules, me| rules.governed(me, object));
        self.tell();
    }
}

fn told(letters: &[Letter], entry: Entry) -> bool {
    let about = |letter: &Letter| matches!(letter, Letter::Taken((taken, _)) if *taken == entry);
    letters.iter().any(about)
}

/// How a process comes back.
#[derive(Default)]
pub struct Back {
    /// Pages that others had meanwhile: to be compared with their copies yet.
    pub regained: Vec<Lost>,
    /// Pages that others have: to be closed.
    pub lost: Vec<Lost>,
}

/// Why an object can't be used now.
#[derive(Debug, PartialEq, Eq)]
pub enum NotYet {
    /// Others have yet to close it: [`Sharing::wait`], and ask again.
    Wait(u32),
    /// There is no room in the table.
    Full,
}

/// How much of its stint a process that runs has left.
fn left_of(member: &Member) -> Option<Duration> {
    let used = cycles().wrapping_sub(member.since.load(Relaxed));
    (used < STINT).then(|| time_of(STINT - used))
}

/// About as much time, on a CPU of 2 GHz.
fn time_of(cycles: u32) -> Duration {
    Duration::from_nanos(cycles as u64 * 512)
}

/// Whether a kernel thread has ended, for one who holds the lock suspiciously long.
fn is_gone(tid: u32) -> bool {
    match std::fs::read(format!("/proc/{tid}/stat")) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(text) => {
            let after = text.iter().rposition(|&b| b == b')').unwrap_or(0);
            matches!(text.get(after + 2), Some(b'Z' | b'X'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Producer;

    /// The producer keeps it alive.
    struct Process(Sharing, Producer);

    /// On a thread of its own, since a thread writes one stream only.
    fn process<T: Send>(channel: &Channel, work: impl FnOnce(Process) -> T + Send) -> T {
        let channel = *channel;
        std::thread::scope(|scope| {
            let run = move || {
                let producer = channel.new_stream().unwrap();
                let sharing = Sharing::join(&channel, producer.stream()).unwrap();
                work(Process(sharing, producer))
            };
            scope.spawn(run).join().unwrap()
        })
    }

    #[test]
    fn a_page_has_one_owner() {
        let (channel, _fd) = Channel::create().unwrap();
        channel.control().line.writer.store(1, SeqCst);
        let object = name(&Object::Anon(7));
        let read = |page, to: &mut Contents| {
            to[7] = 5;
            page == (object, 3)
        };
        process(&channel, |Process(first, _producer)| {
            let page = first.page(object, 3).unwrap();
            assert_eq!(first.page(object, 3), Some(page));
            assert_ne!(first.page(object, 4), Some(page));
            assert_eq!(first.try_acquire(page, (object, 3), &read), Some(true));
            process(&channel, |Process(second, _producer)| {
                assert_eq!(second.try_acquire(page, (object, 3), &read), None);
                assert!(!first.wanted());
                // It may be taken from one who waits in the kernel, and is told.
                first.park();
                assert_eq!(second.try_acquire(page, (object, 3), &read), Some(false));
                assert!(first.wanted() && !first.owns(page));
                let mut hold = Hold::<()>::default();
                hold.acquired(page, (object, 3));
                let back = first.come_back(&mut hold, false, &|_, _| {}, &read, &mut |_, _, _| {});
                assert_eq!((back.regained.len(), back.lost), (0, vec![(page, Some(0))]));
                assert_eq!(first.copy(0).unwrap()[7], 5);
                second.release(&[page]);
                assert_eq!(first.try_acquire(page, (object, 3), &read), Some(false));
            });
        });
        // The dead own nothing.
        process(&channel, |Process(third, _producer)| {
            let page = third.page(object, 3).unwrap();
            assert_eq!(third.try_acquire(page, (object, 3), &read), Some(false));
        });
    }

    #[test]
    fn objects_are_governed_when_a_second_process_comes() {
        let (channel, _fd) = Channel::create().unwrap();
        channel.control().line.writer.store(1, SeqCst);
        let object = name(&Object::File { dev: 1, ino: 2 });
        process(&channel, |Process(first, _producer)| {
            assert_eq!(first.use_object(object, &|_, _| {}), Ok(false));
            assert!(first.to_govern().is_empty());
            process(&channel, |Process(second, _producer)| {
                // One who waits in the kernel looks before it goes on: nobody waits for it.
                first.park();
                assert!(second.is_used_by_others(object));
                assert_eq!(second.use_object(object, &|_, _| {}), Ok(true));
                let hold = &mut Hold::<()>::default();
                first.come_back(hold, false, &|_, _| {}, &|_, _| false, &mut |_, _, _| {});
                assert_eq!(first.to_govern(), [object]);
                first.governed(object);
                assert!(first.to_govern().is_empty());
                second.leave_object(object);
                assert!(!first.is_used_by_others(object));
            });
        });
    }
}
