//! `malloc` and its family, so that a replay has the same addresses.
//!
//! Each thread has an arena, and what it allocates and frees itself depends on nothing else. Memory that another
//! thread frees comes back in batches, by an event of the arena's order; so do large blocks, by one object for all. What functions of the
//! C library allocate that only a recording calls comes from a heap apart.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::fail;
use crate::format::Op;
use crate::order::{Ordered, critical};
use crate::real::set_errno;
use crate::sys::{self, Lock, nr};
use crate::thread::{self, Thread, me};

/// Where the heap is, in every run: nothing else is there, natively or under clew.
const BASE: usize = 0x3000_0000_0000;
const LIMIT: usize = 0x3400_0000_0000;
/// The heap apart.
const APART: usize = 0x3400_0000_0000;
const APART_LIMIT: usize = 0x3600_0000_0000;
/// So much is mapped at once.
const STEP: usize = 64 << 20;

const HEADER: usize = 16;
/// Larger blocks are shared by all threads.
const SMALL: usize = 64 << 10;
/// 16 bytes apart up to 1 KiB, then four for each power of two.
const CLASSES: usize = 64 + 4 * 6;
const LARGE_CLASSES: usize = 160;
/// An arena takes so much memory at once.
const SLAB: usize = 256 << 10;
/// As many blocks go back to another thread's arena at once.
const BATCH: u32 = 32;

const ALIGNED: u32 = 0xa119;

/// What stands before each block.
#[repr(C)]
struct Block {
    class: u32,
    arena: u32,
    /// Where the block really begins, for aligned ones; the next free one, while it is free.
    link: *mut Block,
}

#[repr(C)]
pub struct Arena {
    free: [*mut Block; CLASSES],
    at: usize,
    end: usize,
    index: u32,
    /// How many threads have had it and ended: in a replay, its next owner waits for the one before.
    left: AtomicU32,
    remote: Ordered,
    returned: *mut Block,
    next: *mut Arena,
}

/// Blocks on their way to another thread's arena.
#[repr(C)]
pub struct Outbox {
    arena: u32,
    count: u32,
    first: *mut Block,
    last: *mut Block,
}

struct Large {
    order: Ordered,
    at: usize,
    mapped: usize,
    limit: usize,
    free: [*mut Block; LARGE_CLASSES],
}

static mut LARGE: Large = Large {
    order: Ordered::new(),
    at: BASE,
    mapped: BASE,
    limit: LIMIT,
    free: [core::ptr::null_mut(); LARGE_CLASSES],
};
static mut LARGE_APART: Large = Large {
    order: Ordered::new(),
    at: APART,
    mapped: APART,
    limit: APART_LIMIT,
    free: [core::ptr::null_mut(); LARGE_CLASSES],
};

const MOST_ARENAS: usize = 1 << 16;
/// Of the heap apart.
const NOBODY: u32 = u32::MAX;
static ARENAS: [AtomicUsize; MOST_ARENAS] = [const { AtomicUsize::new(0) }; MOST_ARENAS];
static COUNT: AtomicU32 = AtomicU32::new(0);
static FREE_LOCK: Lock = Lock::new();
static mut FREE: *mut Arena = core::ptr::null_mut();

static APART_LOCK: Lock = Lock::new();
static mut APART_ARENA: Arena = empty(NOBODY);

const fn empty(index: u32) -> Arena {
    Arena {
        free: [core::ptr::null_mut(); CLASSES],
        at: 0,
        end: 0,
        index,
        left: AtomicU32::new(0),
        remote: Ordered::new(),
        returned: core::ptr::null_mut(),
        next: core::ptr::null_mut(),
    }
}

/// The arena with this number, made if it isn't there.
pub fn arena(index: u64) -> *mut Arena {
    let Some(place) = ARENAS.get(index as usize) else {
        fail::stop("there are too many threads at once for a woven recording");
    };
    if place.load(Ordering::Acquire) == 0 {
        let arena = sys::map(size_of::<Arena>()).cast::<Arena>();
        // SAFETY: new memory of that size.
        unsafe { arena.write(empty(index as u32)) };
        if place
            .compare_exchange(0, arena as usize, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: nobody has seen it.
            unsafe { sys!(nr::MUNMAP, arena, size_of::<Arena>()) };
        }
    }
    place.load(Ordering::Acquire) as *mut Arena
}

pub fn main_arena() -> *mut Arena {
    COUNT.store(1, Ordering::Relaxed);
    arena(0)
}

pub fn index(arena: *const Arena) -> u64 {
    // SAFETY: arenas are never unmapped.
    unsafe { (*arena).index.into() }
}

/// Recording: an arena for a new thread, if possible one that another has left.
pub fn take_arena() -> *mut Arena {
    FREE_LOCK.lock();
    // SAFETY: under the lock.
    let free = unsafe {
        let free = FREE;
        if !free.is_null() {
            FREE = (*free).next;
        }
        free
    };
    FREE_LOCK.unlock();
    if !free.is_null() {
        return free;
    }
    arena(COUNT.fetch_add(1, Ordering::Relaxed).into())
}

/// How many threads have had it.
pub fn owners(arena: *const Arena) -> u64 {
    // SAFETY: arenas are never unmapped.
    unsafe { (*arena).left.load(Ordering::SeqCst).into() }
}

/// The calling thread begins to use its arena, when as many threads as that have had it.
pub fn adopt(arena: *mut Arena, owners: u64) {
    // SAFETY: arenas are never unmapped.
    let left = unsafe { &(*arena).left };
    loop {
        let now = left.load(Ordering::SeqCst);
        if u64::from(now) == owners {
            return;
        }
        sys::futex_wait(left, now, 1000);
    }
}

/// The thread that used it has ended.
pub fn leave(arena: *mut Arena) {
    // SAFETY: arenas are never unmapped.
    unsafe {
        (*arena).left.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&(*arena).left, 1000);
        FREE_LOCK.lock();
        (*arena).next = FREE;
        FREE = arena;
        FREE_LOCK.unlock();
    }
}

/// Sizes of classes: of the block with its header.
fn class_of(size: usize) -> usize {
    if size <= 1024 {
        return size.div_ceil(16) - 1;
    }
    let top = (size - 1).ilog2() as usize;
    64 + (top - 10) * 4 + (((size - 1) >> (top - 2)) & 3)
}

fn size_of_class(class: usize) -> usize {
    if class < 64 {
        return (class + 1) * 16;
    }
    let (top, quarter) = ((class - 64) / 4, (class - 64) % 4);
    (5 + quarter) << (top + 8)
}

/// The same for large blocks.
fn large_class(size: usize) -> usize {
    let top = (size - 1).ilog2() as usize;
    (top - 16) * 4 + (((size - 1) >> (top - 2)) & 3)
}

fn large_size(class: usize) -> usize {
    (5 + class % 4) << (class / 4 + 14)
}

impl Large {
    /// Fresh or freed memory of a class, zeroed but for its header; null if there is none. Under its lock.
    unsafe fn take(&mut self, class: usize, arena: u32) -> *mut Block {
        // SAFETY: blocks on the list are free and mapped.
        unsafe {
            let mut block = self.free[class];
            if !block.is_null() {
                self.free[class] = (*block).link;
            } else {
                let size = large_size(class);
                if !self.reserve(size) {
                    return core::ptr::null_mut();
                }
                block = self.at as *mut Block;
                self.at += size;
            }
            (*block).class = CLASSES as u32 + class as u32;
            (*block).arena = arena;
            (*block).link = core::ptr::null_mut();
            block
        }
    }

    /// Maps what is needed for `size` more bytes.
    fn reserve(&mut self, size: usize) -> bool {
        while self.at + size > self.mapped {
            let step = STEP.max(size.next_multiple_of(STEP));
            if self.mapped + step > self.limit {
                return false;
            }
            // Private, anonymous, no reserve, exactly there and over nothing.
            // SAFETY: nothing is replaced.
            let at = unsafe { sys!(nr::MMAP, self.mapped, step, 3, 0x104022, -1, 0) };
            if at != self.mapped as i64 {
                if at > 0 {
                    // SAFETY: a kernel that doesn't know the flag took it for a hint.
                    unsafe { sys!(nr::MUNMAP, at, step) };
                    fail::stop("the addresses that a woven program's heap needs are taken");
                }
                if at == -17 {
                    fail::stop("the addresses that a woven program's heap needs are taken");
                }
                return false;
            }
            self.mapped += step;
        }
        true
    }

    unsafe fn give(&mut self, block: *mut Block) {
        // SAFETY: the block is free, and its memory page by page its own.
        unsafe {
            let class = (*block).class as usize - CLASSES;
            // Back to the kernel; a free block reads as zeros.
            sys!(nr::MADVISE, block, large_size(class), 4);
            (*block).class = (CLASSES + class) as u32;
            (*block).link = self.free[class];
            self.free[class] = block;
        }
    }
}

/// The thread whose allocations are in order, if the caller is one.
#[inline(always)]
fn owner() -> *mut Thread {
    let t = me();
    // SAFETY: the calling thread's record.
    match unsafe { t.as_ref() } {
        Some(one) if one.depth == 0 && !one.arena.is_null() => t,
        _ => core::ptr::null_mut(),
    }
}

unsafe fn pop(arena: &mut Arena, class: usize) -> *mut Block {
    let block = arena.free[class];
    if !block.is_null() {
        // SAFETY: a free block of this arena.
        arena.free[class] = unsafe { (*block).link };
    }
    block
}

unsafe fn push(arena: &mut Arena, block: *mut Block) {
    // SAFETY: the block is the arena's, and free from now on.
    unsafe {
        let class = (*block).class as usize;
        (*block).link = arena.free[class];
        arena.free[class] = block;
    }
}

/// More blocks of a class: what others gave back, else fresh ones.
#[cold]
unsafe fn refill(t: *mut Thread, arena: *mut Arena, class: usize) -> *mut Block {
    // SAFETY: the arena is the calling thread's, or under the lock of the heap apart.
    unsafe {
        if !t.is_null() {
            let returned = critical(t, &raw mut (*arena).remote, Op::Heap, || {
                core::mem::replace(&mut (*arena).returned, core::ptr::null_mut())
            });
            let mut block = returned;
            while !block.is_null() {
                let next = (*block).link;
                push(&mut *arena, block);
                block = next;
            }
            let block = pop(&mut *arena, class);
            if !block.is_null() {
                return block;
            }
        }
        let size = size_of_class(class);
        let count = (2048 / size).clamp(1, 32);
        if (*arena).at + size * count > (*arena).end {
            let slab = large(t, SLAB, (*arena).index);
            if slab.is_null() {
                return slab;
            }
            (*arena).at = slab as usize + HEADER;
            (*arena).end = slab as usize + large_size(large_class(SLAB));
        }
        let first = (*arena).at;
        (*arena).at += size * count;
        for n in (0..count).rev() {
            let block = (first + n * size) as *mut Block;
            (*block).class = class as u32;
            (*block).arena = (*arena).index;
            push(&mut *arena, block);
        }
        pop(&mut *arena, class)
    }
}

/// A large block, of at least `size` bytes with its header.
unsafe fn large(t: *mut Thread, size: usize, arena: u32) -> *mut Block {
    let class = large_class(size);
    if class >= LARGE_CLASSES {
        return core::ptr::null_mut();
    }
    // SAFETY: under the lock.
    unsafe {
        if t.is_null() {
            let apart = &raw mut LARGE_APART;
            (*apart).order.lock.lock();
            let block = (*apart).take(class, NOBODY);
            (*apart).order.lock.unlock();
            return block;
        }
        let all = &raw mut LARGE;
        critical(t, &raw mut (*all).order, Op::Heap, || {
            (*all).take(class, arena)
        })
    }
}

unsafe fn allocate(size: usize) -> *mut c_void {
    let Some(size) = size.max(1).checked_add(HEADER) else {
        return no_memory();
    };
    // SAFETY: the calling thread's arena, or the heap apart under its lock.
    unsafe {
        let t = owner();
        let block = if size > SMALL {
            if size > 1 << 46 {
                return no_memory();
            }
            large(t, size, t.as_ref().map_or(NOBODY, |t| (*t.arena).index))
        } else if t.is_null() {
            APART_LOCK.lock();
            let arena = &raw mut APART_ARENA;
            let class = class_of(size);
            let mut block = pop(&mut *arena, class);
            if block.is_null() {
                block = refill(t, arena, class);
            }
            APART_LOCK.unlock();
            block
        } else {
            let class = class_of(size);
            let arena = (*t).arena;
            let mut block = pop(&mut *arena, class);
            if block.is_null() {
                block = refill(t, arena, class);
            }
            block
        };
        if block.is_null() {
            return no_memory();
        }
        block.cast::<u8>().add(HEADER).cast()
    }
}

#[cold]
fn no_memory() -> *mut c_void {
    set_errno(12);
    core::ptr::null_mut()
}

/// The block that memory handed out belongs to.
unsafe fn block_of(memory: *mut c_void) -> *mut Block {
    // SAFETY: memory that came from here has a header.
    unsafe {
        let block = memory.cast::<u8>().sub(HEADER).cast::<Block>();
        if (*block).class == ALIGNED {
            (*block).link
        } else {
            block
        }
    }
}

/// Bytes that can be used from `memory` on.
unsafe fn room(memory: *mut c_void) -> usize {
    // SAFETY: memory that came from here.
    unsafe {
        let block = block_of(memory);
        let class = (*block).class as usize;
        let size = if class < CLASSES {
            size_of_class(class)
        } else {
            large_size(class - CLASSES)
        };
        block as usize + size - memory as usize
    }
}

unsafe fn release(memory: *mut c_void) {
    // SAFETY: memory that came from here and isn't used any more.
    unsafe {
        let block = block_of(memory);
        if block as usize >= APART {
            if (*block).class as usize >= CLASSES {
                let apart = &raw mut LARGE_APART;
                (*apart).order.lock.lock();
                (*apart).give(block);
                (*apart).order.lock.unlock();
            } else {
                APART_LOCK.lock();
                let arena = &raw mut APART_ARENA;
                push(&mut *arena, block);
                APART_LOCK.unlock();
            }
            return;
        }
        let t = owner();
        let Some(one) = t.as_mut() else {
            // By a thread that has ended, or in a call that a replay doesn't make: nobody else may get it in time.
            return;
        };
        if (*block).class as usize >= CLASSES {
            let all = &raw mut LARGE;
            return critical(t, &raw mut (*all).order, Op::Heap, || (*all).give(block));
        }
        let arena = one.arena;
        if (*block).arena == (*arena).index {
            return push(&mut *arena, block);
        }
        if one.outbox.count != 0 && one.outbox.arena != (*block).arena {
            flush(one);
        }
        let outbox = &mut one.outbox;
        (*block).link = outbox.first;
        if outbox.count == 0 {
            outbox.arena = (*block).arena;
            outbox.last = block;
        }
        outbox.first = block;
        outbox.count += 1;
        if outbox.count == BATCH {
            flush(one);
        }
    }
}

/// Gives back what is on its way to another thread's arena.
pub fn flush(t: &mut Thread) {
    if t.outbox.count == 0 {
        return;
    }
    let (first, last) = (t.outbox.first, t.outbox.last);
    let arena = arena(t.outbox.arena.into());
    t.outbox = Outbox {
        arena: 0,
        count: 0,
        first: core::ptr::null_mut(),
        last: core::ptr::null_mut(),
    };
    // SAFETY: a chain of free blocks of that arena, added under its lock.
    unsafe {
        critical(&raw mut *t, &raw mut (*arena).remote, Op::Heap, || {
            (*last).link = (*arena).returned;
            (*arena).returned = first;
        });
    }
}

/// Around a fork: the child must find the heap apart whole.
pub fn lock() {
    APART_LOCK.lock();
    // SAFETY: only the lock.
    unsafe {
        let apart = &raw mut LARGE_APART;
        (*apart).order.lock.lock();
    }
}

pub fn unlock() {
    // SAFETY: only the lock.
    unsafe {
        let apart = &raw mut LARGE_APART;
        (*apart).order.lock.unlock();
    }
    APART_LOCK.unlock();
}

unsafe fn aligned(align: usize, size: usize) -> *mut c_void {
    // SAFETY: the block is as large as is asked for.
    unsafe {
        if align <= 16 {
            return allocate(size);
        }
        let Some(total) = size.checked_add(align + HEADER) else {
            return no_memory();
        };
        let memory = allocate(total);
        if memory.is_null() {
            return memory;
        }
        let at = (memory as usize).next_multiple_of(align);
        if at != memory as usize {
            let block = (at - HEADER) as *mut Block;
            (*block).link = block_of(memory);
            (*block).class = ALIGNED;
        }
        at as *mut c_void
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: nothing is asked of the caller.
    unsafe { allocate(size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(memory: *mut c_void) {
    if !memory.is_null() {
        // SAFETY: the program's promise.
        unsafe { release(memory) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(size) = count.checked_mul(size) else {
        return no_memory();
    };
    // SAFETY: there is as much room. Large blocks are zero already.
    unsafe {
        let memory = allocate(size);
        if !memory.is_null() && size + HEADER <= SMALL {
            core::ptr::write_bytes(memory.cast::<u8>(), 0, size);
        }
        memory
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(memory: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the program's promise about `memory`.
    unsafe {
        if memory.is_null() {
            return allocate(size);
        }
        if size == 0 {
            release(memory);
            return core::ptr::null_mut();
        }
        let room = room(memory);
        if size <= room && (size >= room / 2 || room <= 256) {
            return memory;
        }
        let new = allocate(size);
        if !new.is_null() {
            core::ptr::copy_nonoverlapping(memory.cast::<u8>(), new.cast::<u8>(), size.min(room));
            release(memory);
        }
        new
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(memory: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as realloc.
        Some(size) => unsafe { realloc(memory, size) },
        None => no_memory(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(8) {
        return 22;
    }
    // SAFETY: the program's pointer.
    unsafe {
        let memory = aligned(align, size);
        if memory.is_null() {
            return 12;
        }
        *to = memory;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: nothing is asked of the caller.
    unsafe { aligned(align.next_power_of_two(), size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: the same.
    unsafe { aligned(align.next_power_of_two(), size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: the same.
    unsafe { aligned(4096, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    // SAFETY: the same.
    unsafe { aligned(4096, size.next_multiple_of(4096)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> usize {
    if memory.is_null() {
        return 0;
    }
    // SAFETY: the program's promise.
    unsafe { room(memory) }
}

const _: () = assert!(size_of::<Block>() == HEADER && thread::OFF == 0);
