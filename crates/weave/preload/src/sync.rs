//! Locks, conditions, semaphores, barriers: the objects by which threads order themselves.
//!
//! An object's clock lies in bytes of it that the C library doesn't use. A table by address would
//! not do: memory is used again, and many objects are never initialised or destroyed by a call.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::export;
use crate::fail;
use crate::format::Op;
use crate::order::{
    advance, begin, done, held, number, numbered, odd, odd_result, over, plain, turn,
};
use crate::real;
use crate::sys::{self, Lock};
use crate::thread::{OFF, RECORD, Thread, me};

type P = *mut c_void;

/// The calling thread, if its events are noted.
#[inline(always)]
fn active() -> Option<&'static mut Thread> {
    // SAFETY: the calling thread's own record.
    unsafe { me().as_mut().filter(|t| t.mode != OFF && t.depth == 0) }
}

// ---- mutexes

/// Robust mutexes and those with priorities use all of their bytes.
static ASIDE_LOCK: Lock = Lock::new();
const ASIDE: usize = 4096;
static mut ASIDE_KEYS: [usize; ASIDE] = [0; ASIDE];
static mut ASIDE_CLOCKS: [u64; ASIDE] = [0; ASIDE];

#[inline(always)]
unsafe fn mutex_clock(mutex: P) -> *mut u64 {
    // SAFETY: a mutex of the C library: its kind is at 16, two pointers at 24.
    unsafe {
        let kind = *mutex.cast::<u32>().add(4);
        if kind & 0x70 != 0 {
            return aside(mutex as usize);
        }
        mutex.cast::<u64>().add(3)
    }
}

#[cold]
#[inline(never)]
fn aside(key: usize) -> *mut u64 {
    ASIDE_LOCK.lock();
    // SAFETY: under the lock; clocks stay where they are.
    let found = unsafe {
        let keys = &raw mut ASIDE_KEYS;
        let mut at = (key >> 3).wrapping_mul(0x9e37_79b1) % ASIDE;
        let mut tries = 0;
        while (*keys)[at] != key && (*keys)[at] != 0 {
            at = (at + 1) % ASIDE;
            tries += 1;
            if tries == ASIDE {
                fail::stop(
                    "there are too many robust mutexes, or mutexes with priorities, for a woven recording",
                );
            }
        }
        (*keys)[at] = key;
        (&raw mut ASIDE_CLOCKS).cast::<u64>().add(at)
    };
    ASIDE_LOCK.unlock();
    found
}

export! { fn pthread_mutex_init(mutex: P, attributes: P; site = "rdx") -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe {
        let real: unsafe extern "C" fn(P, P) -> c_int = core::mem::transmute(INIT.get("pthread_mutex_init\0"));
        let result = real(mutex, attributes);
        if result == 0 {
            *mutex_clock(mutex) = 0;
        }
        result
    }
}}
static INIT: Cached = Cached(AtomicUsize::new(0));

/// A function of the C library, looked up once.
struct Cached(AtomicUsize);

impl Cached {
    fn get(&self, name: &str) -> usize {
        if self.0.load(Ordering::Relaxed) == 0 {
            // SAFETY: names here end with NUL.
            self.0.store(unsafe { real::next(name) }, Ordering::Relaxed);
        }
        self.0.load(Ordering::Relaxed)
    }
}

/// Takes a mutex by `real`; in a replay by waiting for its turn. Results other than 0 are written down.
#[inline(always)]
unsafe fn take(mutex: P, op: Op, site: usize, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's mutex.
    unsafe {
        let Some(t) = active() else {
            return real();
        };
        if t.mode == RECORD {
            let result = real();
            if result == 0 {
                held(t, mutex_clock(mutex), op, site);
            } else {
                take_odd(t, mutex, op, site, result);
            }
            return result;
        }
        take_again(t, mutex, op, site)
    }
}

/// The owner has died, and the mutex is held.
const OWNER_DEAD: c_int = 130;

#[cold]
unsafe fn take_odd(t: &mut Thread, mutex: P, op: Op, site: usize, result: c_int) {
    // SAFETY: the program's mutex.
    unsafe {
        let mut turn = None;
        if result == OWNER_DEAD {
            let clock = mutex_clock(mutex);
            turn = Some(*clock as u32);
            *clock = u64::from((*clock as u32).wrapping_add(1)) | u64::from(t.id) << 32;
        }
        odd(t, op, site, turn, result.into());
    }
}

/// Takes a mutex whose turn has come, so that it is free at once, unless the replay has gone wrong: whoever looks for
/// threads that can't go on sees that this one waits until the lock's word is 0.
unsafe fn lock_again(t: &Thread, mutex: P) {
    // SAFETY: the program's mutex.
    unsafe {
        // One that the thread may hold already isn't waited for, and its word isn't 0.
        if *mutex.cast::<u32>().add(4) & 3 == 0 {
            t.waits_seq.store(0, Ordering::Relaxed);
            t.waits_for.store(mutex as usize, Ordering::Release);
        }
        real::pthread_mutex_lock()(mutex);
        t.waits_for.store(0, Ordering::Release);
    }
}

#[inline(never)]
unsafe fn take_again(t: &mut Thread, mutex: P, op: Op, site: usize) -> c_int {
    // SAFETY: the program's mutex.
    unsafe {
        let entry = begin(t, op, site);
        let result = odd_result(&entry).unwrap_or(0) as c_int;
        if result == 0 || result == OWNER_DEAD {
            turn(t, mutex_clock(mutex), &entry);
            lock_again(t, mutex);
        }
        done(t);
        result
    }
}

export! { fn pthread_mutex_lock(mutex: P; site = "rsi") -> c_int {
    // SAFETY: the program's own arguments, passed on; likewise below.
    unsafe { take(mutex, Op::Lock, site, || real::pthread_mutex_lock()(mutex)) }
}}

export! { fn pthread_mutex_trylock(mutex: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { take(mutex, Op::TryLock, site, || real::pthread_mutex_trylock()(mutex)) }
}}

export! { fn pthread_mutex_timedlock(mutex: P, time: P; site = "rdx") -> c_int {
    // SAFETY: see above.
    unsafe { take(mutex, Op::Lock, site, || real::pthread_mutex_timedlock()(mutex, time)) }
}}

export! { fn pthread_mutex_clocklock(mutex: P, clock: c_int, time: P; site = "rcx") -> c_int {
    // SAFETY: see above.
    unsafe { take(mutex, Op::Lock, site, || real::pthread_mutex_clocklock()(mutex, clock, time)) }
}}

export! { fn pthread_mutex_unlock(mutex: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { give(mutex, site) }
}}

/// Replaying: gives a mutex to whoever is next. A thread that has come to its end does it too: it may have been
/// about to, or waited for a condition, when the process ended.
unsafe fn release(mutex: P) {
    // SAFETY: the program's mutex.
    unsafe {
        // Before it is really unlocked: its memory may be gone right after.
        advance(mutex_clock(mutex));
        real::pthread_mutex_unlock()(mutex);
    }
}

#[inline(always)]
unsafe fn give(mutex: P, site: usize) -> c_int {
    // SAFETY: the program's mutex.
    unsafe {
        let Some(t) = active() else {
            return real::pthread_mutex_unlock()(mutex);
        };
        if t.mode == RECORD {
            let result = real::pthread_mutex_unlock()(mutex);
            match result {
                0 => plain(t, Op::Unlock, site),
                other => odd(t, Op::Unlock, site, None, other.into()),
            }
            return result;
        }
        if over(t) {
            release(mutex);
        }
        let entry = begin(t, Op::Unlock, site);
        let result = odd_result(&entry).unwrap_or(0) as c_int;
        if result == 0 {
            release(mutex);
        }
        done(t);
        result
    }
}

// ---- conditions: a wait gives the mutex away and has another turn with it

#[inline(always)]
unsafe fn wait(mutex: P, site: usize, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's condition and mutex.
    unsafe {
        let Some(t) = active() else {
            return real();
        };
        if t.mode == RECORD {
            let result = real();
            // The mutex is held again, also after a timeout.
            if result == 0 {
                held(t, mutex_clock(mutex), Op::Wait, site);
            } else {
                let clock = mutex_clock(mutex);
                let seq = *clock as u32;
                *clock = u64::from(seq.wrapping_add(1)) | u64::from(t.id) << 32;
                odd(t, Op::Wait, site, Some(seq), result.into());
            }
            return result;
        }
        if over(t) {
            release(mutex);
        }
        let entry = begin(t, Op::Wait, site);
        let clock = mutex_clock(mutex);
        release(mutex);
        turn(t, clock, &entry);
        lock_again(t, mutex);
        done(t);
        odd_result(&entry).unwrap_or(0) as c_int
    }
}

export! { fn pthread_cond_wait(condition: P, mutex: P; site = "rdx") -> c_int {
    // SAFETY: see above.
    unsafe { wait(mutex, site, || real::pthread_cond_wait()(condition, mutex)) }
}}

export! { fn pthread_cond_timedwait(condition: P, mutex: P, time: P; site = "rcx") -> c_int {
    // SAFETY: see above.
    unsafe { wait(mutex, site, || real::pthread_cond_timedwait()(condition, mutex, time)) }
}}

export! { fn pthread_cond_clockwait(condition: P, mutex: P, clock: c_int, time: P; site = "r8") -> c_int {
    // SAFETY: see above.
    unsafe { wait(mutex, site, || real::pthread_cond_clockwait()(condition, mutex, clock, time)) }
}}

#[inline(always)]
unsafe fn signal(site: usize, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the calling thread's own.
    unsafe {
        let Some(t) = active() else {
            return real();
        };
        if t.mode == RECORD {
            let result = real();
            plain(t, Op::Signal, site);
            return result;
        }
        begin(t, Op::Signal, site);
        done(t);
        0
    }
}

export! { fn pthread_cond_signal(condition: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { signal(site, || real::pthread_cond_signal()(condition)) }
}}

export! { fn pthread_cond_broadcast(condition: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { signal(site, || real::pthread_cond_broadcast()(condition)) }
}}

// ---- read-write locks: the number is taken when the lock is; the lock itself keeps writers apart

/// Two words that the C library doesn't use.
unsafe fn rwlock_clock(lock: P) -> *mut u64 {
    // SAFETY: a lock of 56 bytes.
    unsafe { lock.cast::<u64>().add(2) }
}

#[inline(always)]
unsafe fn take_rw(
    lock: P,
    op: Op,
    site: usize,
    write: bool,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program's lock.
    unsafe {
        let Some(t) = active() else {
            return real();
        };
        if t.mode == RECORD {
            let result = real();
            if result == 0 {
                let taken = number(t, AtomicU64::from_ptr(rwlock_clock(lock)));
                numbered(t, op, site, taken);
            } else {
                odd(t, op, site, None, result.into());
            }
            return result;
        }
        t.object
            .store(rwlock_clock(lock) as usize, Ordering::Relaxed);
        let entry = begin(t, op, site);
        let result = odd_result(&entry).unwrap_or(0) as c_int;
        if result == 0 {
            turn(t, rwlock_clock(lock), &entry);
            match write {
                true => real::pthread_rwlock_wrlock()(lock),
                false => real::pthread_rwlock_rdlock()(lock),
            };
            advance(rwlock_clock(lock));
        }
        done(t);
        result
    }
}

export! { fn pthread_rwlock_rdlock(lock: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { take_rw(lock, Op::ReadLock, site, false, || real::pthread_rwlock_rdlock()(lock)) }
}}
export! { fn pthread_rwlock_tryrdlock(lock: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { take_rw(lock, Op::ReadLock, site, false, || real::pthread_rwlock_tryrdlock()(lock)) }
}}
export! { fn pthread_rwlock_timedrdlock(lock: P, time: P; site = "rdx") -> c_int {
    // SAFETY: see above.
    unsafe { take_rw(lock, Op::ReadLock, site, false, || real::pthread_rwlock_timedrdlock()(lock, time)) }
}}
export! { fn pthread_rwlock_wrlock(lock: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { take_rw(lock, Op::WriteLock, site, true, || real::pthread_rwlock_wrlock()(lock)) }
}}
export! { fn pthread_rwlock_trywrlock(lock: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { take_rw(lock, Op::WriteLock, site, true, || real::pthread_rwlock_trywrlock()(lock)) }
}}
export! { fn pthread_rwlock_timedwrlock(lock: P, time: P; site = "rdx") -> c_int {
    // SAFETY: see above.
    unsafe { take_rw(lock, Op::WriteLock, site, true, || real::pthread_rwlock_timedwrlock()(lock, time)) }
}}
export! { fn pthread_rwlock_unlock(lock: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe {
        if let Some(t) = active() {
            // Before: the lock's memory may be gone right after.
            if t.mode == RECORD {
                plain(t, Op::RwUnlock, site);
            } else {
                begin(t, Op::RwUnlock, site);
                done(t);
            }
        }
        real::pthread_rwlock_unlock()(lock)
    }
}}

// ---- semaphores: a post has its number before it is made, a wait when it is over

unsafe fn sem_clock(sem: P) -> *mut u64 {
    // SAFETY: a semaphore of 32 bytes, of which the C library uses 16.
    unsafe { sem.cast::<u64>().add(2) }
}

export! { fn sem_init(sem: P, shared: c_int, value: u32; site = "rcx") -> c_int {
    // SAFETY: see above.
    unsafe {
        let result = real::sem_init()(sem, shared, value);
        if result == 0 {
            *sem_clock(sem) = 0;
        }
        result
    }
}}

export! { fn sem_post(sem: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe {
        let Some(t) = active() else {
            return real::sem_post()(sem);
        };
        if t.mode == RECORD {
            let taken = number(t, AtomicU64::from_ptr(sem_clock(sem)));
            let result = real::sem_post()(sem);
            match result {
                0 => numbered(t, Op::Post, site, taken),
                // Too many; the number is used up all the same.
                _ => odd(t, Op::Post, site, Some(taken.0), result.into()),
            }
            return result;
        }
        t.object.store(sem_clock(sem) as usize, Ordering::Relaxed);
        let entry = begin(t, Op::Post, site);
        turn(t, sem_clock(sem), &entry);
        let result = odd_result(&entry).unwrap_or(0) as c_int;
        // Both before the post: whoever waits may destroy the semaphore right after it.
        advance(sem_clock(sem));
        if result == 0 {
            real::sem_post()(sem);
        } else {
            real::set_errno(75);
        }
        done(t);
        result
    }
}}

/// The post that a clock's semaphore was to get from a thread that has come to its end.
///
/// # Safety
/// The semaphore lives.
pub unsafe fn post_for(clock: usize) {
    // SAFETY: the clock is 16 bytes behind its beginning.
    unsafe { real::sem_post()((clock - 16) as P) };
}

#[inline(always)]
unsafe fn take_sem(sem: P, site: usize, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's semaphore.
    unsafe {
        let Some(t) = active() else {
            return real();
        };
        if t.mode == RECORD {
            let result = real();
            if result == 0 {
                let taken = number(t, AtomicU64::from_ptr(sem_clock(sem)));
                numbered(t, Op::SemWait, site, taken);
            } else {
                odd(
                    t,
                    Op::SemWait,
                    site,
                    None,
                    (*real::__errno_location()).into(),
                );
            }
            return result;
        }
        t.object.store(sem_clock(sem) as usize, Ordering::Relaxed);
        let entry = begin(t, Op::SemWait, site);
        if let Some(errno) = odd_result(&entry) {
            done(t);
            real::set_errno(errno as i32);
            return -1;
        }
        turn(t, sem_clock(sem), &entry);
        while real::sem_wait()(sem) != 0 {}
        advance(sem_clock(sem));
        done(t);
        0
    }
}

export! { fn sem_wait(sem: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { take_sem(sem, site, || real::sem_wait()(sem)) }
}}
export! { fn sem_trywait(sem: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { take_sem(sem, site, || real::sem_trywait()(sem)) }
}}
export! { fn sem_timedwait(sem: P, time: P; site = "rdx") -> c_int {
    // SAFETY: see above.
    unsafe { take_sem(sem, site, || real::sem_timedwait()(sem, time)) }
}}
export! { fn sem_clockwait(sem: P, clock: c_int, time: P; site = "rcx") -> c_int {
    // SAFETY: see above.
    unsafe { take_sem(sem, site, || real::sem_clockwait()(sem, clock, time)) }
}}
export! { fn sem_getvalue(sem: P, value: *mut c_int; site = "rdx") -> c_int {
    // SAFETY: see above.
    unsafe {
        let Some(t) = active() else {
            return real::sem_getvalue()(sem, value);
        };
        if t.mode == RECORD {
            let result = real::sem_getvalue()(sem, value);
            odd(t, Op::SemValue, site, None, (*value).into());
            return result;
        }
        let entry = begin(t, Op::SemValue, site);
        *value = odd_result(&entry).unwrap_or(0) as c_int;
        done(t);
        0
    }
}}

// ---- barriers: our own, so that numbers say who passes with whom

#[repr(C)]
struct Barrier {
    clock: AtomicU64,
    count: u32,
    /// Changes with each round.
    rounds: AtomicU32,
    leaving: AtomicU32,
    lock: Lock,
    arrived: u32,
}

const SERIAL: c_int = -1;

export! { fn pthread_barrier_init(barrier: P, attributes: P, count: u32; site = "rcx") -> c_int {
    // SAFETY: the program's memory of 32 bytes, that nobody uses yet; attributes are an int.
    unsafe {
        if count == 0 {
            return 22;
        }
        if !attributes.is_null() && *attributes.cast::<c_int>() != 0 {
            fail::unseen("the program shares a barrier with other processes, which a woven recording can't hold; record it with: clew record");
        }
        core::ptr::write_bytes(barrier.cast::<u8>(), 0, 32);
        (*barrier.cast::<Barrier>()).count = count;
        0
    }
}}

export! { fn pthread_barrier_destroy(barrier: P; site = "rsi") -> c_int {
    // SAFETY: the program's barrier. Those who have passed may still be on their way out.
    unsafe {
        let barrier = &*barrier.cast::<Barrier>();
        while barrier.leaving.load(Ordering::Acquire) != 0 {
            sys!(24);
        }
        0
    }
}}

export! { fn pthread_barrier_wait(barrier: P; site = "rsi") -> c_int {
    // SAFETY: the program's barrier.
    unsafe {
        let barrier = barrier.cast::<Barrier>();
        let clock = (&raw mut (*barrier).clock).cast::<u64>();
        let mut t = active();
        let mut entry = None;
        if let Some(t) = t.as_mut().filter(|t| t.mode != RECORD) {
            entry = begin(t, Op::Barrier, site);
            turn(t, clock, &entry);
        }
        (*barrier).lock.lock();
        let round = (*barrier).rounds.load(Ordering::Relaxed);
        (*barrier).leaving.fetch_add(1, Ordering::Relaxed);
        (*barrier).arrived += 1;
        let last = (*barrier).arrived == (*barrier).count;
        if last {
            (*barrier).arrived = 0;
        }
        if let Some(t) = t.as_mut() {
            match t.mode {
                RECORD => held(t, clock, Op::Barrier, site),
                _ => advance(clock),
            }
        }
        (*barrier).lock.unlock();
        if last {
            (*barrier).rounds.fetch_add(1, Ordering::Release);
            sys::futex_wake(&(*barrier).rounds, u32::MAX >> 1);
        } else {
            while (*barrier).rounds.load(Ordering::Acquire) == round {
                let replays = t.as_ref().filter(|t| t.mode != RECORD);
                if let Some(t) = replays {
                    t.waits_seq.store(round.wrapping_add(1).into(), Ordering::Relaxed);
                    t.waits_for.store((*barrier).rounds.as_ptr() as usize, Ordering::Release);
                }
                let in_time = sys::futex_wait(&(*barrier).rounds, round, 1000);
                if let Some(t) = replays {
                    if !in_time {
                        fail::stuck(t);
                    }
                    t.waits_for.store(0, Ordering::Release);
                }
            }
        }
        (*barrier).leaving.fetch_sub(1, Ordering::Release);
        if let Some(t) = t.as_mut().filter(|t| t.mode != RECORD) {
            done(t);
        }
        let _ = entry;
        if last { SERIAL } else { 0 }
    }
}}

// ---- spin locks: too small for a clock, so they are numbers of our own

const SPINS: usize = 1 << 14;
static SPIN_LOCKS: [SpinLock; SPINS] = [const {
    SpinLock {
        taken: AtomicU32::new(0),
        order: AtomicU64::new(0),
    }
}; SPINS];
static NEXT_SPIN: AtomicU32 = AtomicU32::new(1);
static FREE_SPIN: Lock = Lock::new();
static mut FREE_SPINS: u32 = 0;
/// Marks a number of ours, so that memory that was never initialised isn't taken for one.
const OURS: u32 = 0x5e00_0000;

struct SpinLock {
    taken: AtomicU32,
    order: AtomicU64,
}

fn new_spin() -> u32 {
    FREE_SPIN.lock();
    // SAFETY: under the lock; a free one's word holds the next.
    let mut at = unsafe {
        let at = FREE_SPINS;
        if at != 0 {
            FREE_SPINS = SPIN_LOCKS[at as usize].taken.load(Ordering::Relaxed);
        }
        at
    };
    if at == 0 {
        at = NEXT_SPIN.fetch_add(1, Ordering::Relaxed);
        if at as usize >= SPINS {
            fail::stop("there are too many spin locks for a woven recording");
        }
    }
    FREE_SPIN.unlock();
    SPIN_LOCKS[at as usize].taken.store(0, Ordering::Relaxed);
    SPIN_LOCKS[at as usize].order.store(0, Ordering::Relaxed);
    OURS | at
}

/// The lock that a word stands for. A word of zeros or ones, never initialised, gets one when it is first used.
unsafe fn spin_of(word: P) -> &'static SpinLock {
    // SAFETY: the program's spin lock.
    let word = unsafe { AtomicU32::from_ptr(word.cast()) };
    loop {
        let value = word.load(Ordering::Acquire);
        let at = (value & !OURS) as usize;
        if value & 0xff00_0000 == OURS && at < SPINS && at != 0 {
            return &SPIN_LOCKS[at];
        }
        let _ = word.compare_exchange(value, new_spin(), Ordering::AcqRel, Ordering::Acquire);
    }
}

export! { fn pthread_spin_init(word: P, shared: c_int; site = "rdx") -> c_int {
    if shared != 0 {
        fail::unseen("the program shares a spin lock with other processes, which a woven recording can't hold; record it with: clew record");
    }
    // SAFETY: the program's spin lock.
    unsafe { *word.cast::<u32>() = new_spin() };
    0
}}

export! { fn pthread_spin_destroy(word: P; site = "rsi") -> c_int {
    // SAFETY: the program's spin lock, which nobody uses any more.
    unsafe {
        let value = *word.cast::<u32>();
        let at = value & !OURS;
        if value & 0xff00_0000 == OURS && at != 0 && (at as usize) < SPINS {
            FREE_SPIN.lock();
            SPIN_LOCKS[at as usize].taken.store(FREE_SPINS, Ordering::Relaxed);
            FREE_SPINS = at;
            FREE_SPIN.unlock();
            *word.cast::<u32>() = 0;
        }
    }
    0
}}

unsafe fn take_spin(word: P, site: usize, only_try: bool) -> c_int {
    // SAFETY: the program's spin lock.
    unsafe {
        let lock = spin_of(word);
        let mut t = active();
        let mut entry = None;
        if let Some(t) = t.as_mut().filter(|t| t.mode != RECORD) {
            entry = begin(t, Op::Spin, site);
            if odd_result(&entry).is_some() {
                done(t);
                return 16;
            }
            turn(t, lock.order.as_ptr(), &entry);
        }
        let _ = &entry;
        let mut spins = 0;
        while lock.taken.swap(1, Ordering::Acquire) != 0 {
            if only_try && t.as_ref().is_none_or(|t| t.mode == RECORD) {
                if let Some(t) = t {
                    odd(t, Op::Spin, site, None, 16);
                }
                return 16;
            }
            core::hint::spin_loop();
            spins += 1;
            if spins % 1000 == 0 {
                sys!(24);
            }
        }
        if let Some(t) = t {
            match t.mode {
                RECORD => held(t, lock.order.as_ptr(), Op::Spin, site),
                _ => done(t),
            }
        }
        0
    }
}

export! { fn pthread_spin_lock(word: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { take_spin(word, site, false) }
}}
export! { fn pthread_spin_trylock(word: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { take_spin(word, site, true) }
}}
export! { fn pthread_spin_unlock(word: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe {
        let lock = spin_of(word);
        if let Some(t) = active() {
            if t.mode == RECORD {
                plain(t, Op::SpinUnlock, site);
            } else {
                if over(t) {
                    advance(lock.order.as_ptr());
                    lock.taken.store(0, Ordering::Release);
                }
                begin(t, Op::SpinUnlock, site);
                advance(lock.order.as_ptr());
                done(t);
            }
        }
        lock.taken.store(0, Ordering::Release);
        0
    }
}}

// ---- once, and the guards of static variables: only who does the work has an entry

static ONCE_CHANGES: AtomicU32 = AtomicU32::new(0);
const FRESH: u32 = 0;
const BUSY: u32 = 1;
const DONE: u32 = 2;

/// What tells this one from others, in every run.
fn identity(word: usize, site: usize) -> i64 {
    ((word & 0xfff) << 12 | (site & 0xfff)) as i64
}

/// Who has to do the work? Waits for others who do.
unsafe fn once_begin(state: &AtomicU32, op: Op, site: usize) -> bool {
    // SAFETY: the calling thread's own.
    unsafe {
        let t = active();
        let id = identity(state.as_ptr() as usize, site);
        if let Some(t) = t {
            if t.mode == RECORD {
                loop {
                    let changes = ONCE_CHANGES.load(Ordering::SeqCst);
                    match state.compare_exchange(FRESH, BUSY, Ordering::SeqCst, Ordering::SeqCst) {
                        Ok(_) => {
                            odd(t, op, site, None, id);
                            return true;
                        }
                        Err(DONE) => return false,
                        Err(_) => sys::futex_wait(&ONCE_CHANGES, changes, 0),
                    };
                }
            }
            // Its own entry is the next only if the work was this thread's.
            let mine = (*t.head).count == t.due && crate::tape::peek(t, op, id);
            if mine {
                begin(t, op, site);
                done(t);
                state.store(BUSY, Ordering::SeqCst);
                return true;
            }
            loop {
                let changes = ONCE_CHANGES.load(Ordering::SeqCst);
                if state.load(Ordering::SeqCst) == DONE {
                    t.waits_for.store(0, Ordering::Release);
                    return false;
                }
                t.waits_seq.store(DONE.into(), Ordering::Relaxed);
                t.waits_for
                    .store(state.as_ptr() as usize, Ordering::Release);
                if !sys::futex_wait(&ONCE_CHANGES, changes, 1000) {
                    fail::stuck(t);
                }
            }
        }
        loop {
            let changes = ONCE_CHANGES.load(Ordering::SeqCst);
            match state.compare_exchange(FRESH, BUSY, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(DONE) => return false,
                Err(_) => sys::futex_wait(&ONCE_CHANGES, changes, 1000),
            };
        }
    }
}

fn once_end(state: &AtomicU32, now: u32) {
    state.store(now, Ordering::SeqCst);
    ONCE_CHANGES.fetch_add(1, Ordering::SeqCst);
    sys::futex_wake(&ONCE_CHANGES, u32::MAX >> 1);
}

export! { fn pthread_once(control: *mut u32, routine: extern "C" fn(); site = "rdx") -> c_int {
    // SAFETY: the program's control word and function.
    unsafe {
        let state = AtomicU32::from_ptr(control);
        if state.load(Ordering::Acquire) != DONE && once_begin(state, Op::Once, site) {
            routine();
            once_end(state, DONE);
        }
        0
    }
}}

export! { fn call_once(control: *mut u32, routine: extern "C" fn(); site = "rdx") -> () {
    // SAFETY: the same.
    unsafe {
        let state = AtomicU32::from_ptr(control);
        if state.load(Ordering::Acquire) != DONE && once_begin(state, Op::Once, site) {
            routine();
            once_end(state, DONE);
        }
    }
}}

// A guard's first byte says that its variable is initialised; compiled code looks at it alone. The second half is ours.

export! { fn __cxa_guard_acquire(guard: *mut u32; site = "rsi") -> c_int {
    // SAFETY: the program's guard of eight bytes.
    unsafe {
        if AtomicU32::from_ptr(guard).load(Ordering::Acquire) & 0xff != 0 {
            return 0;
        }
        once_begin(AtomicU32::from_ptr(guard.add(1)), Op::Guard, site).into()
    }
}}
export! { fn __cxa_guard_release(guard: *mut u32; site = "rsi") -> () {
    // SAFETY: the same.
    unsafe {
        AtomicU32::from_ptr(guard).store(1, Ordering::SeqCst);
        once_end(AtomicU32::from_ptr(guard.add(1)), DONE);
    }
}}
export! { fn __cxa_guard_abort(guard: *mut u32; site = "rsi") -> () {
    // SAFETY: the same.
    unsafe { once_end(AtomicU32::from_ptr(guard.add(1)), FRESH) }
}}

// ---- C11's names for the same

export! { fn mtx_lock(mutex: P; site = "rsi") -> c_int {
    // SAFETY: see above. The C library's mtx_t is its mutex.
    unsafe { c11(take(mutex, Op::Lock, site, || real::pthread_mutex_lock()(mutex))) }
}}
export! { fn mtx_trylock(mutex: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { c11(take(mutex, Op::TryLock, site, || real::pthread_mutex_trylock()(mutex))) }
}}
export! { fn mtx_timedlock(mutex: P, time: P; site = "rdx") -> c_int {
    // SAFETY: see above.
    unsafe { c11(take(mutex, Op::Lock, site, || real::pthread_mutex_timedlock()(mutex, time))) }
}}
export! { fn mtx_unlock(mutex: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { c11(give(mutex, site)) }
}}
export! { fn cnd_wait(condition: P, mutex: P; site = "rdx") -> c_int {
    // SAFETY: see above.
    unsafe { c11(wait(mutex, site, || real::pthread_cond_wait()(condition, mutex))) }
}}
export! { fn cnd_timedwait(condition: P, mutex: P, time: P; site = "rcx") -> c_int {
    // SAFETY: see above.
    unsafe { c11(wait(mutex, site, || real::pthread_cond_timedwait()(condition, mutex, time))) }
}}
export! { fn cnd_signal(condition: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { c11(signal(site, || real::pthread_cond_signal()(condition))) }
}}
export! { fn cnd_broadcast(condition: P; site = "rsi") -> c_int {
    // SAFETY: see above.
    unsafe { c11(signal(site, || real::pthread_cond_broadcast()(condition))) }
}}

/// thrd_success, thrd_busy, thrd_nomem, thrd_timedout, else thrd_error.
fn c11(error: c_int) -> c_int {
    match error {
        0 => 0,
        16 => 1,
        12 => 3,
        110 => 4,
        _ => 2,
    }
}

// Threads of C11: not yet.
export! { fn thrd_create(handle: P, routine: P, argument: P; site = "rcx") -> c_int {
    let _ = (handle, routine, argument);
    fail::unseen("the program creates threads by thrd_create, which a woven recording can't hold yet; record it with: clew record");
    2
}}

const _: () = assert!(size_of::<Barrier>() <= 32);
