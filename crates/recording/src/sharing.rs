//! Who may touch a page of memory that recorded processes share.
//!
//! In: processes that map shared memory, and ask for its pages. Out: each page belongs to one process at
//! a time; whoever wants it waits until its owner gives it up, at a place that its recording knows.
//!
//! The table lies behind the rings of the [`Channel`], so every recorded process has it. Pages are known by
//! what they are a page of, not by address. Who gets what, and when, is in [`rules`]; here is the lock, and waiting.
//!
//! An owner keeps its pages until somebody asks, and for a *stint* even then: processes that use the same pages
//! run one after the other, each long enough that most of its time goes into its work. One whose stint is over
//! steps aside for those who asked, for a stint: as it is away meanwhile, all its pages can be taken without asking for each.

mod copies;
mod hold;
#[cfg(test)]
mod model;
mod rules;
mod versions;

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::channel::Channel;
use crate::event::StreamId;
use crate::futex;
use crate::maps::Object;
use crate::shared::{self, MOST_SLOTS, PAGE, state};

pub(crate) use copies::COPIES;
use copies::Copy;
pub use copies::{Each, Look, Wanted};
use hold::Room;
pub use hold::{Hold, Letter, Lost, PageOf};
use rules::{Member, Page, Rules, Use, Waits, Who};
pub use versions::Version;

/// Pages that can be owned: 4 GiB of shared memory.
const PAGES: usize = 1 << 20;
const USES: usize = 8192;
/// A process that has come back isn't disturbed for so long, in units of 1024 cycles: about 800 µs.
const STINT: u32 = 2000;
/// So long one waits for all that it wants to regain: about 20 ms.
const PATIENCE: u32 = 25 * STINT;
const LONG_WAIT: Duration = Duration::from_millis(1);
const VERY_LONG: Duration = Duration::from_secs(5);
/// Set in the lock's word while somebody waits for it.
const CONTENDED: u32 = 1 << 31;

#[repr(C)]
pub(crate) struct Table {
    /// Whose it is: the number of a member, from 1 on.
    lock: AtomicU32,
    /// Changes whenever a page or a process becomes free.
    news: AtomicU32,
    /// How many wait for news, or have died doing so.
    waiters: AtomicU32,
    objects: AtomicU64,
    uses_end: AtomicU32,
    /// How many pages have a copy.
    copies: AtomicU32,
    uses: [Use; USES],
    members: [Member; MOST_SLOTS],
    pages: [Page; PAGES],
}

/// The size of the table in the channel's file.
pub(crate) const SIZE: usize = size_of::<Table>().next_multiple_of(PAGE);

/// What is in a page, in words: compared with the CPU's vectors, where libc's `memcmp` takes byte by byte.
pub type Contents = [u64; PAGE / 8];

/// How a process comes back.
#[derive(Debug, Default)]
pub struct Back {
    /// Pages that others have: to be closed.
    pub lost: Vec<Lost>,
    /// Objects that another process has begun to use as well.
    pub govern: Vec<u64>,
    /// How many pages were regained.
    pub regained: usize,
}

/// A page's place in the table.
pub type Entry = u32;

/// The table as one process uses it.
pub struct Sharing {
    table: &'static Table,
    /// Copies of pages, once they are needed.
    copies: AtomicPtr<Copy>,
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
        self.me().is_here(shared::known_pid_namespace());
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
        // A vfork's child may be the first of a namespace.
        self.me().is_here(shared::pid_namespace());
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
        let me = self.index as u32 + 1;
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
            if holder == 0 || holder == suspect && self.is_gone(holder as usize - 1) {
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

    /// Whether a member that has the lock for suspiciously long has died.
    fn is_gone(&self, index: usize) -> bool {
        let member = &self.table.members[index];
        if member.is_visible() {
            return has_ended(member.locks.load(Relaxed));
        }
        // Its tid may be anybody's here, or nobody's. The kernel marks what a dead thread owned, wherever it lived.
        self.channel.slot(index).owner.load(SeqCst) & futex::OWNER == 0
    }

    /// Makes a step, under the lock.
    fn step<T>(&self, step: impl FnOnce(&Rules, Who) -> T) -> T {
        let _locked = self.lock();
        self.step_locked(step)
    }

    fn step_locked<T>(&self, step: impl FnOnce(&Rules, Who) -> T) -> T {
        let find = |stream| {
            let (index, slot) = self.channel.find(stream)?;
            let owned = slot.owner.load(SeqCst) & futex::OWNER != 0;
            (owned && slot.state.load(SeqCst) == state::LIVE).then_some(index)
        };
        // Many pages are asked about at once, and most have the same owner.
        let last = Cell::new((0, None));
        let living = |stream| {
            if last.get().0 != stream {
                last.set((stream, find(stream)));
            }
            last.get().1
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
        // None is ever removed: most are found without the lock.
        for probe in 0..PAGES {
            let at = (first + probe) % PAGES;
            match self.table.pages[at].key.load(Acquire) {
                found if found == key => return Some(at as Entry),
                0 => break,
                _ => {}
            }
        }
        let _locked = self.lock();
        for probe in 0..PAGES {
            let at = (first + probe) % PAGES;
            let found = self.table.pages[at].key.load(Relaxed);
            if found == key {
                return Some(at as Entry);
            }
            if found == 0 {
                self.table.pages[at].key.store(key, Release);
                return Some(at as Entry);
            }
        }
        None
    }

    pub fn owns(&self, entry: Entry) -> bool {
        self.table.pages[entry as usize].owner.load(Acquire) == self.stream
    }

    /// Takes a page if its owner doesn't use it; `each` sees what is new in it.
    pub fn try_acquire(&self, entry: Entry, wanted: &Wanted, each: &mut Each) -> bool {
        self.step(|rules, me| {
            let taken = rules.take(me, entry);
            let taken = taken.map(|taken| self.taken(rules, &taken, wanted, each));
            taken.is_ok()
        })
    }

    /// Waits until the page is ours; meanwhile this process is away. `kick` makes a process's thread look up from its
    /// work; `late` is called when it takes very long, with the owner's pid, if that means something here, and how long it has
    /// taken, until it says true.
    pub fn acquire(
        &self,
        entry: Entry,
        wanted: &Wanted,
        each: &mut Each,
        kick: &dyn Fn(i32, i32),
        late: &dyn Fn(Option<i32>, Duration) -> bool,
    ) {
        let begin = shared::now();
        let mut told = false;
        let mut woken = None;
        loop {
            let locked = self.lock();
            let step = |rules: &Rules, me| {
                let taken = rules.take_or_wait(me, entry)?;
                self.taken(rules, &taken, wanted, each);
                Ok(())
            };
            let waits: Waits = match self.step_locked(step) {
                Ok(()) => {
                    self.me().since.store(cycles(), Relaxed);
                    return;
                }
                Err(waits) => waits,
            };
            let owner = &self.table.members[waits.owner];
            let pid = owner.is_visible().then(|| owner.pid.load(Relaxed));
            self.wait_for(locked, waits, kick, &mut woken);
            let waited = Duration::from_nanos(shared::now().saturating_sub(begin));
            if !told && waited > VERY_LONG {
                told = late(pid, waited);
            }
        }
    }

    /// Waits for the owner of a page to give it up, or to be away.
    fn wait_for(
        &self,
        locked: Locked,
        waits: Waits,
        kick: &dyn Fn(i32, i32),
        woken: &mut Option<u32>,
    ) {
        if waits.tell {
            self.tell_one();
        }
        let owner = &self.table.members[waits.owner];
        let wait = match left_of(owner) {
            Some(left) => left,
            // It has been given the page, and comes for it.
            None if owner.doing.load(Relaxed) != rules::doing::RUNS => LONG_WAIT,
            None => {
                // Under the lock: it takes the lock to move to another thread, or to leave.
                owner.kick(kick);
                LONG_WAIT
            }
        };
        self.wait_locked(locked, wait, woken);
    }

    /// Waits for news, without the lock. News wake one who waits; if it has to wait on, it wakes another, once.
    fn wait_locked(&self, locked: Locked, time: Duration, woken: &mut Option<u32>) {
        let seen = self.table.news.load(Relaxed);
        self.table.waiters.fetch_add(1, SeqCst);
        drop(locked);
        if woken.replace(seen).is_some_and(|before| before != seen) {
            futex::wake_one(&self.table.news);
        }
        futex::wait(&self.table.news, seen, Some(time));
        self.table.waiters.fetch_sub(1, SeqCst);
    }

    /// The process goes on. It has lost pages; those that it will want again at once are regained if they can be had. It
    /// waits for them, away, if it may; not for long. Of those that are regained `each` sees what is new in them, under the lock.
    pub fn come_back(
        &self,
        hold: &mut Hold,
        may_wait: bool,
        kick: &dyn Fn(i32, i32),
        look: &dyn Look,
        each: &mut dyn FnMut(PageOf, &Contents, Range<usize>),
    ) -> Back {
        let begin = cycles();
        let mut woken = None;
        let mut room = std::mem::take(&mut hold.room);
        let Room {
            lost,
            wanted,
            regained,
        } = &mut room;
        let govern = loop {
            let locked = self.lock();
            lost.clear();
            wanted.clear();
            let asked = self.wanted();
            if asked {
                let more = self.step_locked(|rules, me| {
                    rules.letters(me, |letter| lost.extend(hold.read(letter)))
                });
                if more {
                    let told: HashSet<Entry> = lost.iter().map(|&(entry, _)| entry).collect();
                    let all = hold.all().into_iter();
                    let others = all.filter(|entry| !self.owns(*entry) && !told.contains(entry));
                    lost.extend(others.map(|entry| (entry, None)));
                }
                wanted.extend(lost.iter().copied().filter(|&lost| hold.wants(lost)));
            }
            if may_wait
                && cycles().wrapping_sub(begin) < PATIENCE
                && let Some(waits) = self.step_locked(|rules, me| rules.busy(me, wanted))
            {
                self.wait_for(locked, waits, kick, &mut woken);
                continue;
            }
            regained.clear();
            self.step_locked(|rules, me| {
                rules.regain(me, wanted, |taken, seen| {
                    let Some(page) = hold.get(taken.entry) else {
                        return;
                    };
                    let wanted = Wanted {
                        page,
                        seen: Some(seen),
                        known: false,
                        look,
                    };
                    let each = &mut |now: &Contents, range| each(page, now, range);
                    if self.publish(rules, &taken, &wanted, each).is_ok() {
                        regained.push(taken.entry);
                        hold.regained(taken.entry);
                    }
                });
            });
            self.me().since.store(cycles(), Relaxed);
            break asked.then(|| self.step_locked(|rules, me| rules.to_govern(me)));
        };
        if !lost.is_empty() {
            hold.round();
        }
        regained.sort_unstable();
        lost.retain(|(entry, _)| regained.binary_search(entry).is_err());
        let back = Back {
            lost: lost.clone(),
            govern: govern.unwrap_or_default(),
            regained: regained.len(),
        };
        hold.room = room;
        back
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

    /// Is away while those who have asked for these pages take them and run, for a stint or two; it stays away.
    pub fn step_aside(&self, entries: &[Entry]) {
        let mut locked = self.lock();
        let takers = self.step_locked(|rules, me| rules.aside(me, entries));
        self.tell_one();
        let begin = cycles();
        let mut woken = None;
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
            self.wait_locked(locked, time_of(STINT), &mut woken);
            locked = self.lock();
        }
    }

    /// Something may be news to all who wait.
    fn tell(&self) {
        self.table.news.fetch_add(1, SeqCst);
        if self.table.waiters.load(SeqCst) != 0 {
            futex::wake(&self.table.news);
        }
    }

    /// This process is away: one who waits can have its pages, and the next one would have to wait for that one.
    fn tell_one(&self) {
        self.table.news.fetch_add(1, SeqCst);
        if self.table.waiters.load(SeqCst) != 0 {
            futex::wake_one(&self.table.news);
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
    pub fn read_letters(&self, hold: &mut Hold) {
        self.step(|rules, me| {
            rules.letters(me, |letter| {
                hold.read(letter);
            });
            rules.regain(me, &[], |_, _| {});
        });
    }

    /// The process is about to wait in the kernel; until [`Self::come_back`] its pages can be taken.
    pub fn park(&self) {
        if self.step(|rules, me| rules.away(me, None)) {
            self.tell_one();
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
            self.table.members[index].kick(kick);
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
        // It may have been for another.
        if self.table.news.load(Relaxed) != seen {
            futex::wake_one(&self.table.news);
        }
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

/// Whether a kernel thread of this pid namespace has ended.
fn has_ended(tid: u32) -> bool {
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

    /// All pages have this in their eighth word.
    struct Test(u64);

    impl Look for Test {
        fn read(&self, _: PageOf, to: &mut Contents) -> bool {
            to[7] = self.0;
            true
        }
        fn is(&self, page: PageOf, contents: &Contents) -> Option<bool> {
            let mut now: Contents = [0; _];
            self.read(page, &mut now).then(|| now == *contents)
        }
    }

    fn come_back(who: &Sharing, hold: &mut Hold) -> Back {
        who.come_back(hold, false, &|_, _| {}, &Test(0), &mut |_, _, _| {})
    }

    #[test]
    fn a_page_has_one_owner() {
        let (channel, _fd) = Channel::create().unwrap();
        channel.control().line.writer.store(1, SeqCst);
        let object = name(&Object::Anon(7));
        // With this in its eighth word, by one whose replay has that version: what is it told?
        let take = |who: &Sharing, entry, word, seen| {
            let wanted = Wanted {
                page: (object, 3),
                seen,
                known: true,
                look: &Test(word),
            };
            let mut told = Vec::new();
            let each = &mut |now: &Contents, range| told.push((now[7], range));
            let got = who.try_acquire(entry, &wanted, each);
            got.then_some(told)
        };
        process(&channel, |Process(first, _producer)| {
            let page = first.page(object, 3).unwrap();
            assert_eq!(first.page(object, 3), Some(page));
            assert_ne!(first.page(object, 4), Some(page));
            assert_eq!(take(&first, page, 5, None), Some(vec![]));
            process(&channel, |Process(second, _producer)| {
                assert_eq!(take(&second, page, 5, None), None);
                assert!(!first.wanted());
                // It may be taken from one who waits in the kernel, and is told.
                first.park();
                assert_eq!(take(&second, page, 5, None), Some(vec![(5, 0..512)]));
                assert!(first.wanted() && !first.owns(page));
                let mut hold = Hold::default();
                hold.acquired(page, (object, 3));
                let back = come_back(&first, &mut hold);
                assert_eq!(back.lost, [(page, Some(1))]);
                second.release(&[page]);
                // And when it is taken back, what is new is told.
                second.park();
                let told = take(&first, page, 6, Some(1));
                assert_eq!(told, Some(vec![(6, 7..8)]));
            });
        });
        // The dead own nothing.
        process(&channel, |Process(third, _producer)| {
            let page = third.page(object, 3).unwrap();
            assert_eq!(take(&third, page, 5, Some(1)), Some(vec![(5, 0..8)]));
        });
    }

    /// A process as others see it from another pid namespace: its tid is nobody's there.
    fn is_elsewhere(who: &Sharing) {
        who.me().namespace.store(1, Relaxed);
        who.me().locks.store(i32::MAX as u32, Relaxed);
    }

    #[test]
    fn what_lives_in_another_namespace_isnt_taken_for_dead() {
        let (channel, _fd) = Channel::create().unwrap();
        channel.control().line.writer.store(1, SeqCst);
        let inside = std::sync::atomic::AtomicBool::new(false);
        process(&channel, |Process(first, _producer)| {
            is_elsewhere(&first);
            let locked = first.lock();
            inside.store(true, SeqCst);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    process(&channel, |Process(second, _producer)| {
                        // It looks for the dead every millisecond.
                        let _locked = second.lock();
                        assert!(!inside.load(SeqCst), "the lock was broken");
                    });
                });
                std::thread::sleep(50 * LONG_WAIT);
                inside.store(false, SeqCst);
                drop(locked);
            });
        });
        // One that really dies with the lock is found out.
        process(&channel, |Process(third, _producer)| {
            is_elsewhere(&third);
            std::mem::forget(third.lock());
        });
        process(&channel, |Process(fourth, _producer)| drop(fourth.lock()));
    }

    #[test]
    fn numbers_of_another_namespace_are_not_kicked() {
        let (channel, _fd) = Channel::create().unwrap();
        channel.control().line.writer.store(1, SeqCst);
        process(&channel, |Process(first, _producer)| {
            let kicked = Cell::new(None);
            first.me().kick(&|pid, _| kicked.set(Some(pid)));
            assert_eq!(kicked.take(), Some(shared::pid()));
            is_elsewhere(&first);
            first.me().kick(&|pid, _| kicked.set(Some(pid)));
            assert_eq!(kicked.take(), None);
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
                let hold = &mut Hold::default();
                assert_eq!(come_back(&first, hold).govern, [object]);
                assert_eq!(first.to_govern(), [object]);
                first.governed(object);
                assert!(first.to_govern().is_empty());
                second.leave_object(object);
                assert!(!first.is_used_by_others(object));
            });
        });
    }
}
