//! Threads: create, join, end.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::export;
use crate::fail;
use crate::format::*;
use crate::heap;
use crate::log;
use crate::order::{self, begin, done, odd, odd_result, plain};
use crate::real;
use crate::sys;
use crate::tape;
use crate::thread::{self, RECORD, REPLAY, Thread, me};

type P = *mut c_void;

/// Its destructor is the end of a thread.
static mut KEY: u32 = 0;
/// The C library calls destructors so often, as long as values are set; the last time is ours.
const ROUNDS: u32 = 4;

/// # Safety
/// Before there are threads.
pub unsafe fn prepare() {
    // SAFETY: the caller's.
    unsafe {
        real::pthread_key_create()(&raw mut KEY, Some(ended));
        real::pthread_setspecific()(KEY, core::ptr::dangling::<c_void>());
    }
}

/// Lets a thread read its recorded life, from the chunk at `first`.
///
/// # Safety
/// The log is mapped.
pub unsafe fn attach_replay(t: &mut Thread, first: u64) {
    // SAFETY: the caller's; a report has room for heads.
    unsafe {
        tape::attach(t, first);
        let report = fail::REPORT.load(Ordering::Relaxed);
        t.head = if !report.is_null() && t.id < REPORTED {
            report
                .cast::<u8>()
                .add(HEADS as usize)
                .cast::<Head>()
                .add(t.id as usize)
        } else {
            sys::map(size_of::<Head>()).cast()
        };
        (*t.head).id = t.id;
        (*t.head).state = RUNNING;
    }
}

/// What a new thread begins with.
extern "C" fn started(argument: P) -> P {
    // SAFETY: the record that its creator made for it.
    unsafe {
        let t = argument.cast::<Thread>();
        thread::set_me(t);
        (*t).depth = 1;
        real::pthread_setspecific()(KEY, core::ptr::dangling::<c_void>());
        (*t).depth = 0;
        heap::adopt((*t).arena, (*t).owners);
        let routine: extern "C" fn(P) -> P = core::mem::transmute((*t).routine);
        routine((*t).argument as P)
    }
}

/// The thread's own destructors have run.
extern "C" fn ended(_: P) {
    // SAFETY: the calling thread's own.
    unsafe {
        let Some(t) = me().as_mut() else {
            return;
        };
        t.rounds += 1;
        if t.rounds < ROUNDS {
            t.depth += 1;
            real::pthread_setspecific()(KEY, core::ptr::dangling::<c_void>());
            t.depth -= 1;
            return;
        }
        heap::flush(t);
        match t.mode {
            RECORD => {
                plain(t, Op::End, 0);
                AtomicU32::from_ptr(&raw mut (*t.head).state).store(ENDED, Ordering::Release);
            }
            REPLAY => {
                begin(t, Op::End, 0);
                done(t);
                (*t.head).state = ENDED;
                t.over.store(2, Ordering::SeqCst);
                fail::ENDS.fetch_add(1, Ordering::SeqCst);
                sys::futex_wake(&fail::ENDS, 1000);
            }
            _ => {}
        }
        heap::leave(t.arena);
        thread::set_me(core::ptr::null_mut());
        thread::remove(t);
    }
}

export! { fn pthread_create(handle: *mut usize, attributes: *const c_void, routine: usize, argument: usize; site = "r8") -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe {
        let routine_of = |routine| core::mem::transmute::<usize, extern "C" fn(P) -> P>(routine);
        let t = match me().as_mut() {
            Some(t) if t.mode != thread::OFF && t.depth == 0 => t,
            _ => return real::pthread_create()(handle, attributes, routine_of(routine), argument as P),
        };
        let child;
        if t.mode == RECORD {
            let id = AtomicU32::from_ptr(&raw mut (*log::header()).threads).fetch_add(1, Ordering::Relaxed) + 1;
            let Some(first) = log::first(id) else {
                fail::stop("the disk is full: what was recorded so far replays");
            };
            child = &mut *thread::new(RECORD, id);
            log::attach(child, first);
            child.arena = heap::take_arena();
            // The entry is there before the thread is: it may do things at once.
            child.owners = heap::owners(child.arena);
            let told = [u64::from(id), first, heap::index(child.arena), child.owners];
            let payload = [(told.as_ptr().cast::<u8>(), size_of_val(&told))];
            prepare_child(child, routine, argument);
            let entry = log::Entry { op: Op::Create, hash: 0, turn: None, result: Some(0), sum: None, flags: 0, payload: Some(&payload) };
            order::full(t, site, 0, entry);
            t.depth += 1;
            let result = real::pthread_create()(handle, attributes, started, (&raw mut *child).cast());
            t.depth -= 1;
            if result != 0 {
                odd(t, Op::NotCreated, site, None, result.into());
                heap::leave(child.arena);
                thread::remove(child);
            }
            return result;
        }
        let Some(mut entry) = begin(t, Op::Create, site) else {
            fail::diverge("a thread is created that wasn't");
        };
        let mut told = [0u64; 4];
        entry.copy(told.as_mut_ptr().cast(), size_of_val(&told));
        done(t);
        let mut result = 0;
        if !order::over(t) && tape::is_next(t, Op::NotCreated) {
            let failed = begin(t, Op::NotCreated, site);
            result = odd_result(&failed).unwrap_or(0) as c_int;
            heap::leave(heap::arena(told[2]));
            done(t);
        } else {
            child = &mut *thread::new(REPLAY, told[0] as u32);
            attach_replay(child, told[1]);
            child.arena = heap::arena(told[2]);
            child.owners = told[3];
            prepare_child(child, routine, argument);
            t.depth += 1;
            let result = real::pthread_create()(handle, attributes, started, (&raw mut *child).cast());
            t.depth -= 1;
            if result != 0 {
                fail::diverge("a thread can't be created here; are there limits on memory or processes?");
            }
            child.handle = *handle;
        }
        result
    }
}}

fn prepare_child(child: &mut Thread, routine: usize, argument: usize) {
    child.routine = routine;
    child.argument = argument;
}

/// Joins, by whichever of the functions.
unsafe fn join(handle: usize, site: usize, real: impl Fn() -> c_int) -> c_int {
    // SAFETY: the calling thread's own.
    unsafe {
        let t = match me().as_mut() {
            Some(t) if t.mode != thread::OFF && t.depth == 0 => t,
            _ => return real(),
        };
        if t.mode == RECORD {
            t.depth += 1;
            let result = real();
            t.depth -= 1;
            match result {
                0 => plain(t, Op::Join, site),
                other => odd(t, Op::Join, site, None, other.into()),
            }
            return result;
        }
        let entry = begin(t, Op::Join, site);
        let result = odd_result(&entry).unwrap_or(0) as c_int;
        if result == 0 {
            let mut target = core::ptr::null::<Thread>();
            thread::each(|other| {
                if other.handle == handle {
                    target = other;
                }
            });
            // Not by the C library: whoever looks whether anybody can go on must see who waits for whom.
            while let Some(other) = target.as_ref()
                && other.over.load(Ordering::SeqCst) != 2
            {
                let ends = fail::ENDS.load(Ordering::SeqCst);
                t.waits_seq.store(u64::MAX, Ordering::Relaxed);
                t.waits_for.store(target as usize, Ordering::Release);
                if other.over.load(Ordering::SeqCst) != 2
                    && !sys::futex_wait(&fail::ENDS, ends, 1000)
                {
                    fail::stuck(t);
                }
                t.waits_for.store(0, Ordering::Release);
            }
            t.depth += 1;
            real();
            t.depth -= 1;
        }
        done(t);
        result
    }
}

export! { fn pthread_join(handle: usize, value: *mut P; site = "rdx") -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { join(handle, site, || real::pthread_join()(handle, value)) }
}}

export! { fn pthread_tryjoin_np(handle: usize, value: *mut P; site = "rdx") -> c_int {
    // SAFETY: as above.
    unsafe {
        let replays = me().as_ref().is_some_and(|t| t.mode == REPLAY);
        join(handle, site, || match replays {
            true => real::pthread_join()(handle, value),
            false => real::pthread_tryjoin_np()(handle, value),
        })
    }
}}

export! { fn pthread_timedjoin_np(handle: usize, value: *mut P, time: P; site = "rcx") -> c_int {
    // SAFETY: as above.
    unsafe {
        let replays = me().as_ref().is_some_and(|t| t.mode == REPLAY);
        join(handle, site, || match replays {
            true => real::pthread_join()(handle, value),
            false => real::pthread_timedjoin_np()(handle, value, time),
        })
    }
}}

export! { fn pthread_cancel(handle: usize; site = "rsi") -> c_int {
    let _ = (handle, site);
    fail::unseen("the program cancels threads (pthread_cancel), which a woven recording can't hold; record it with: clew record");
    // SAFETY: looked up by its name.
    unsafe {
        let real: unsafe extern "C" fn(usize) -> c_int = core::mem::transmute(real::next("pthread_cancel\0"));
        real(handle)
    }
}}
