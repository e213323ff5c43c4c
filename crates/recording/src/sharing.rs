//! Who may touch a page of memory that recorded processes share.
//!
//! In: processes that map shared memory, and ask for its pages. Out: each page belongs to one process at
//! a time; whoever wants it waits until its owner gives it up, at a place that its recording knows.
//!
//! The table lies behind the rings of the [`Channel`], so every recorded process has it. Pages are known by
//! what they are a page of, not by address. An owner keeps its pages until somebody asks; one that waits in
//! the kernel (*parked*) doesn't use them, and they are simply taken. Two that wait for each other's pages:
//! the one with the older stream takes. A dead owner owns nothing.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::channel::Channel;
use crate::event::StreamId;
use crate::futex;
use crate::maps::Object;
use crate::shared::{self, MOST_SLOTS, PAGE, state};

/// Pages that can be owned: 4 GiB of shared memory.
const PAGES: usize = 1 << 20;
const USES: usize = 8192;
const LETTERS: usize = 56;
/// An owner may use a page for so long before it is disturbed, in units of 1024 cycles: about 40 µs.
const HOLD: u32 = 100;
const SHORT_WAIT: Duration = Duration::from_micros(30);
const LONG_WAIT: Duration = Duration::from_millis(1);
/// Set in the lock's word while somebody waits for it.
const CONTENDED: u32 = 1 << 31;

mod doing {
    /// Running the guest, or about to.
    pub const RUNS: u32 = 0;
    /// In the kernel, away from its pages.
    pub const PARKED: u32 = 1;
    /// Waiting for a page.
    pub const WAITS: u32 = 2;
}

#[repr(C)]
pub(crate) struct Table {
    lock: AtomicU32,
    /// Changes whenever a page or a process becomes free.
    news: AtomicU32,
    objects: AtomicU64,
    uses_end: AtomicU32,
    uses: [Use; USES],
    members: [Member; MOST_SLOTS],
    pages: [Page; PAGES],
}

/// A process has an object mapped.
#[repr(C)]
struct Use {
    object: AtomicU64,
    stream: AtomicU32,
    /// Whether its pages are closed unless owned.
    governed: AtomicU32,
}

/// What belongs to the process in the slot of the same number.
#[repr(C)]
struct Member {
    doing: AtomicU32,
    /// Somebody wants something from it.
    wanted: AtomicU32,
    pid: AtomicI32,
    tid: AtomicI32,
    /// More letters came than there is room for.
    overflow: AtomicU32,
    count: AtomicU32,
    /// Pages that were asked for, or taken.
    letters: [AtomicU32; LETTERS],
}

#[repr(C)]
struct Page {
    /// What it is a page of, and which; 0 if the entry is free.
    key: AtomicU64,
    owner: AtomicU32,
    /// Who gets it next.
    next: AtomicU32,
    /// When it got its owner.
    since: AtomicU32,
    /// Somebody has owned it.
    used: AtomicU32,
}

/// The size of the table in the channel's file.
pub(crate) const SIZE: usize = size_of::<Table>().next_multiple_of(PAGE);

/// A page's place in the table.
pub type Entry = u32;

/// The table as one process uses it.
pub struct Sharing {
    table: &'static Table,
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
        me.doing.store(doing::RUNS, Relaxed);
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
        loop {
            let seen = table.lock.fetch_or(CONTENDED, Relaxed);
            let holder = seen & !CONTENDED;
            if holder == 0 || is_gone(holder) {
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
            futex::wait(&table.lock, seen | CONTENDED, Some(LONG_WAIT));
        }
    }

    /// The member that writes a stream, if it lives.
    fn living(&self, stream: StreamId) -> Option<&'static Member> {
        let (index, slot) = self.channel.find(stream)?;
        let lives =
            slot.state.load(SeqCst) == state::LIVE && slot.owner.load(SeqCst) & futex::OWNER != 0;
        lives.then(|| &self.table.members[index])
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

    /// Takes a page if its owner doesn't use it. True if nobody has ever owned it.
    pub fn try_acquire(&self, entry: Entry) -> Option<bool> {
        let _locked = self.lock();
        self.take(entry).ok()
    }

    /// Takes a page if that can be: was it nobody's, ever? Else whom to ask. Under the lock.
    fn take(&self, entry: Entry) -> Result<bool, &'static Member> {
        let page = &self.table.pages[entry as usize];
        let owner = page.owner.load(Relaxed);
        if owner == self.stream {
            return Ok(false);
        }
        if owner != 0
            && let Some(member) = self.living(owner)
        {
            match member.doing.load(Relaxed) {
                doing::PARKED => {}
                doing::WAITS if self.stream < owner => {}
                _ => return Err(member),
            }
            post(member, entry);
        }
        page.owner.store(self.stream, Release);
        page.since.store(cycles(), Relaxed);
        if page.next.load(Relaxed) == self.stream {
            page.next.store(0, Relaxed);
        }
        Ok(page.used.swap(1, Relaxed) == 0)
    }

    /// Waits until the page is ours. True if nobody has ever owned it. `kick` makes a process's thread look up from its work; `late` is
    /// called, once, when it takes very long, with the owner's pid.
    pub fn acquire(&self, entry: Entry, kick: &dyn Fn(i32, i32), late: &dyn Fn(i32)) -> bool {
        let page = &self.table.pages[entry as usize];
        let begin = shared::now();
        let mut told = false;
        loop {
            let locked = self.lock();
            let owner = match self.take(entry) {
                Err(owner) => owner,
                Ok(first) => {
                    self.me().doing.store(doing::RUNS, Relaxed);
                    return first;
                }
            };
            if self.me().doing.swap(doing::WAITS, Relaxed) != doing::WAITS {
                // Somebody with an older stream may have waited for this.
                self.tell();
            }
            let next = page.next.load(Relaxed);
            if next == 0 || self.living(next).is_none() {
                page.next.store(self.stream, Relaxed);
            }
            post(owner, entry);
            let seen = self.table.news.load(Relaxed);
            let pid = owner.pid.load(Relaxed);
            let long = cycles().wrapping_sub(page.since.load(Relaxed)) > HOLD;
            if long {
                // Under the lock: it takes the lock to move to another thread, or to leave.
                kick(pid, owner.tid.load(Relaxed));
            }
            drop(locked);
            if long {
                futex::wait(&self.table.news, seen, Some(LONG_WAIT));
            } else {
                futex::wait(&self.table.news, seen, Some(SHORT_WAIT));
            }
            if !told && shared::now().saturating_sub(begin) > 5_000_000_000 {
                told = true;
                late(pid);
            }
        }
    }

    /// Gives pages up: to who has asked first, or to nobody.
    pub fn release(&self, entries: &[Entry]) {
        let locked = self.lock();
        for &entry in entries {
            let page = &self.table.pages[entry as usize];
            if page.owner.load(Relaxed) != self.stream {
                continue;
            }
            let next = page.next.swap(0, Relaxed);
            let next = if next != 0 && self.living(next).is_some() {
                next
            } else {
                0
            };
            page.owner.store(next, Release);
            page.since.store(cycles(), Relaxed);
        }
        drop(locked);
        self.tell();
    }

    fn tell(&self) {
        self.table.news.fetch_add(1, SeqCst);
        futex::wake(&self.table.news);
    }

    /// Does anybody want anything?
    #[inline]
    pub fn wanted(&self) -> bool {
        self.me().wanted.load(Relaxed) != 0
    }

    /// Pages that were asked for or taken since the last time; true if there were more.
    pub fn letters(&self) -> (Vec<Entry>, bool) {
        let _locked = self.lock();
        let me = self.me();
        me.wanted.store(0, Relaxed);
        let count = me.count.swap(0, Relaxed) as usize;
        let letters = me.letters.iter().take(count).map(|l| l.load(Relaxed));
        (letters.collect(), me.overflow.swap(0, Relaxed) != 0)
    }

    /// The process is about to wait in the kernel; until [`Self::unpark`] its pages can be taken.
    pub fn park(&self) {
        let _locked = self.lock();
        self.me().doing.store(doing::PARKED, Relaxed);
        if self.wanted() {
            self.tell();
        }
    }

    pub fn is_parked(&self) -> bool {
        self.me().doing.load(Relaxed) == doing::PARKED
    }

    pub fn unpark(&self) {
        let _locked = self.lock();
        self.me().doing.store(doing::RUNS, Relaxed);
    }

    /// The process maps (or writes to) an object. True if others have it too: then their pages are closed
    /// unless owned when this returns, and so must this process's be.
    pub fn use_object(&self, object: u64, kick: &dyn Fn(i32, i32)) -> bool {
        loop {
            let mut ask = false;
            let seen;
            {
                let _locked = self.lock();
                let end = self.table.uses_end.load(Relaxed) as usize;
                let mut own = None;
                let mut free = None;
                let mut others = false;
                for (n, used) in self.table.uses[..end].iter().enumerate() {
                    let stream = used.stream.load(Relaxed);
                    if stream == 0 {
                        free.get_or_insert(n);
                        continue;
                    }
                    if used.object.load(Relaxed) != object {
                        continue;
                    }
                    if stream == self.stream {
                        own = Some(n);
                        continue;
                    }
                    let Some(member) = self.living(stream) else {
                        used.stream.store(0, Relaxed);
                        free.get_or_insert(n);
                        continue;
                    };
                    others = true;
                    if used.governed.load(Relaxed) != GOVERNED {
                        used.governed.store(TO_GOVERN, Relaxed);
                        member.wanted.store(1, Relaxed);
                        // One that is in the kernel will look before it runs.
                        if member.doing.load(Relaxed) != doing::PARKED {
                            ask = true;
                            kick(member.pid.load(Relaxed), member.tid.load(Relaxed));
                        }
                    }
                }
                let used = match own.or(free) {
                    Some(n) => &self.table.uses[n],
                    None if end < USES => {
                        self.table.uses_end.store(end as u32 + 1, Relaxed);
                        &self.table.uses[end]
                    }
                    None => return others,
                };
                if own.is_none() {
                    used.object.store(object, Relaxed);
                    used.stream.store(self.stream, Relaxed);
                    // Whoever had the slot before may have left something else.
                    used.governed.store(0, Relaxed);
                }
                if others {
                    used.governed.store(GOVERNED, Relaxed);
                }
                if !ask {
                    return others || used.governed.load(Relaxed) == GOVERNED;
                }
                self.me().doing.store(doing::WAITS, Relaxed);
                seen = self.table.news.load(Relaxed);
            }
            futex::wait(&self.table.news, seen, Some(LONG_WAIT));
            let _locked = self.lock();
            self.me().doing.store(doing::RUNS, Relaxed);
        }
    }

    /// Has any process mapped a file or segment shared, since the recording began?
    #[inline]
    pub fn anybody(&self) -> bool {
        self.table.uses_end.load(Relaxed) != 0
    }

    /// Does another process use the object?
    pub fn is_used_by_others(&self, object: u64) -> bool {
        let _locked = self.lock();
        let end = self.table.uses_end.load(Relaxed) as usize;
        self.table.uses[..end].iter().any(|used| {
            let stream = used.stream.load(Relaxed);
            let other = stream != 0 && stream != self.stream;
            other && used.object.load(Relaxed) == object && self.living(stream).is_some()
        })
    }

    /// The process has nothing of the object any more.
    pub fn leave_object(&self, object: u64) {
        let _locked = self.lock();
        for used in self.own_uses() {
            if used.object.load(Relaxed) == object {
                used.stream.store(0, Relaxed);
                used.governed.store(0, Relaxed);
            }
        }
    }

    fn own_uses(&self) -> impl Iterator<Item = &'static Use> {
        let end = self.table.uses_end.load(Relaxed) as usize;
        let stream = self.stream;
        self.table.uses[..end]
            .iter()
            .filter(move |used| used.stream.load(Relaxed) == stream)
    }

    /// Objects that another process has begun to use as well.
    pub fn to_govern(&self) -> Vec<u64> {
        let _locked = self.lock();
        self.own_uses()
            .filter(|used| used.governed.load(Relaxed) == TO_GOVERN)
            .map(|used| used.object.load(Relaxed))
            .collect()
    }

    /// The object's pages are closed here.
    pub fn governed(&self, object: u64) {
        let _locked = self.lock();
        for used in self.own_uses() {
            if used.object.load(Relaxed) == object {
                used.governed.store(GOVERNED, Relaxed);
            }
        }
        self.tell();
    }
}

const TO_GOVERN: u32 = 1;
const GOVERNED: u32 = 2;

/// Tells a member about a page. Under the lock.
fn post(member: &Member, entry: Entry) {
    member.wanted.store(1, Relaxed);
    let count = member.count.load(Relaxed) as usize;
    let there = &member.letters[..count.min(LETTERS)];
    if there.iter().any(|letter| letter.load(Relaxed) == entry) {
        return;
    }
    match member.letters.get(count) {
        Some(room) => {
            room.store(entry, Relaxed);
            member.count.store(count as u32 + 1, Relaxed);
        }
        None => member.overflow.store(1, Relaxed),
    }
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
        process(&channel, |Process(first, _producer)| {
            let page = first.page(object, 3).unwrap();
            assert_eq!(first.page(object, 3), Some(page));
            assert_ne!(first.page(object, 4), Some(page));
            assert_eq!(first.try_acquire(page), Some(true));
            process(&channel, |Process(second, _producer)| {
                assert_eq!(second.try_acquire(page), None);
                assert!(!first.wanted());
                // It may be taken from one who waits in the kernel, and is told.
                first.park();
                assert_eq!(second.try_acquire(page), Some(false));
                first.unpark();
                assert!(first.wanted() && !first.owns(page));
                assert_eq!(first.letters(), (vec![page], false));
                second.release(&[page]);
                assert_eq!(first.try_acquire(page), Some(false));
            });
        });
        // The dead own nothing.
        process(&channel, |Process(third, _producer)| {
            let page = third.page(object, 3).unwrap();
            assert_eq!(third.try_acquire(page), Some(false));
        });
    }

    #[test]
    fn objects_are_governed_when_a_second_process_comes() {
        let (channel, _fd) = Channel::create().unwrap();
        channel.control().line.writer.store(1, SeqCst);
        let object = name(&Object::File { dev: 1, ino: 2 });
        process(&channel, |Process(first, _producer)| {
            assert!(!first.use_object(object, &|_, _| {}));
            assert!(first.to_govern().is_empty());
            process(&channel, |Process(second, _producer)| {
                // One who waits in the kernel looks before it goes on: nobody waits for it.
                first.park();
                assert!(second.is_used_by_others(object));
                assert!(second.use_object(object, &|_, _| {}));
                first.unpark();
                assert_eq!(first.to_govern(), [object]);
                first.governed(object);
                assert!(first.to_govern().is_empty());
                second.leave_object(object);
                assert!(!first.is_used_by_others(object));
            });
        });
    }
}
