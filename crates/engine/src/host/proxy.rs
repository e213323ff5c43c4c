//! A proxy: the kernel thread behind one guest thread.
//!
//! It owns what the kernel keeps per thread (tid, name, signal mask, timers) and makes the calls
//! that must wait or that depend on who makes them. It never runs guest code. It has a small
//! stack, no thread-local storage and no std; it takes one command at a time from its block,
//! carries it out, and reports. Blocks are pooled and never unmapped, so that late reports always
//! find one.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use super::hub::{Hub, futex_wait, futex_wake};
use super::kernel_thread::{KernelThread, Role};
use super::siginfo::{self, Siginfo};
use super::sigset::{SigSet, set_kernel_mask};
use super::{altstack, blocking};
use crate::context::GsBlock;

/// State of a block, and the word that proxy and executor wait on.
pub const IDLE: u32 = 0;
pub const POSTED: u32 = 1;
pub const DONE: u32 = 2;

/// One mapping for each proxy: block, handler stack, stack.
const MAPPING: usize = 96 << 10;
const BLOCK_ROOM: usize = 4 << 10;
const STACK: usize = 28 << 10;

/// What a proxy is asked to do.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Task {
    /// A call that a signal may abort.
    #[default]
    Interruptible = 0,
    /// A call that is made come what may.
    Plain = 1,
    /// Nothing but the mask.
    Mask = 2,
    /// End of the thread, with `args[0]` as its status.
    Exit = 3,
}

/// A command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Command {
    pub task: Task,
    pub nr: i64,
    pub args: [u64; 6],
    /// The kernel's mask to set first.
    pub mask: Option<SigSet>,
    /// A temporary mask for the call itself: `args[n]` is pointed at it.
    pub during: Option<During>,
    /// Wake the executor's wait on the block rather than report to the hub.
    pub waited_for: bool,
}

/// Where a call takes its temporary mask.
#[derive(Clone, Copy, Debug)]
pub struct During {
    pub mask: SigSet,
    pub arg: usize,
    /// pselect6 takes a pointer to (mask, size) instead of the mask.
    pub in_pair: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub value: i64,
    pub aborted: bool,
    /// False if a signal was already taken, so that the mask had to stay as it is (all blocked).
    pub masked: bool,
}

#[repr(C, align(64))]
pub struct ProxyBlock {
    /// So that the header has the offset that it has in the executor's block.
    _pad: [u8; offset_of!(GsBlock, host)],
    pub host: KernelThread,
    hub: AtomicPtr<Hub>,
    pub state: AtomicU32,
    /// The kernel's tid; the kernel clears it when the stack is no longer in use.
    pub tid: AtomicI32,
    pub reported: AtomicU32,
    pub next_report: AtomicPtr<ProxyBlock>,
    /// Which guest thread this is, for the executor.
    pub slot: u32,
    command: Command,
    reply: Reply,
    temporary: [u64; 3],
}
const _: () = assert!(size_of::<ProxyBlock>() <= BLOCK_ROOM);
const _: () = assert!(offset_of!(ProxyBlock, host) == offset_of!(GsBlock, host));

impl ProxyBlock {
    /// There is news: a signal was taken or a call has ended.
    pub fn report(&self) {
        // SAFETY: the hub lies in the executor's block, which is never unmapped.
        unsafe { (*self.hub.load(Ordering::Relaxed)).report(self) };
    }

    fn base(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }
    pub fn stack_top(&self) -> u64 {
        self.base() + MAPPING as u64
    }
}

/// The executor's handle of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxy(*mut ProxyBlock);

impl Proxy {
    pub fn from_report(block: *mut ProxyBlock) -> Proxy {
        Proxy(block)
    }

    pub fn block(&self) -> &ProxyBlock {
        // SAFETY: blocks are never unmapped; fields that both sides use are atomic or handed over
        // with `state`.
        unsafe { &*self.0 }
    }

    pub fn slot(&self) -> usize {
        self.block().slot as usize
    }
    pub fn tid(&self) -> i32 {
        self.block().tid.load(Ordering::Relaxed)
    }
    pub fn is_idle(&self) -> bool {
        self.block().state.load(Ordering::Acquire) == IDLE
    }

    /// The kernel mask that the proxy starts with.
    pub fn set_first_mask(&self, mask: SigSet) {
        // SAFETY: only before the proxy's kernel thread starts.
        unsafe { (*self.0).temporary[0] = mask.0 };
    }

    /// Gives the proxy something to do. It must be idle.
    pub fn post(&self, command: Command) {
        assert!(self.is_idle(), "proxy {} is busy", self.tid());
        // SAFETY: an idle proxy doesn't look at its command.
        unsafe {
            let block = &mut *self.0;
            block.command = command;
            if let Some(during) = command.during {
                let at = &raw const block.temporary as u64;
                block.temporary = [during.mask.0, at, 8];
                block.command.args[during.arg] = if during.in_pair { at + 8 } else { at };
            }
        }
        self.block().state.store(POSTED, Ordering::Release);
        futex_wake(&self.block().state);
    }

    /// The reply, if the proxy has one; it is idle then.
    pub fn poll(&self) -> Option<Reply> {
        if self.block().state.load(Ordering::Acquire) != DONE {
            return None;
        }
        // SAFETY: the proxy has handed the reply over and waits for the next command.
        let reply = unsafe { (*self.0).reply };
        self.block().state.store(IDLE, Ordering::Release);
        Some(reply)
    }

    /// Posts a command and waits for its end. For calls that don't wait long.
    pub fn ask(&self, command: Command) -> Reply {
        self.post(Command {
            waited_for: true,
            ..command
        });
        // Most answers come within a few microseconds: sleeping costs more than that.
        for _ in 0..64 {
            if let Some(reply) = self.poll() {
                return reply;
            }
            std::hint::spin_loop();
        }
        loop {
            if let Some(reply) = self.poll() {
                return reply;
            }
            futex_wait(&self.block().state, POSTED, None);
        }
    }
}

/// Blocks of proxies that have ended, and of those that are about to.
#[derive(Default)]
pub struct Pool {
    used: Vec<Proxy>,
}

impl Pool {
    /// A block that nobody uses, ready for a new kernel thread.
    pub fn block(&mut self, hub: &Hub, slot: usize) -> Option<Proxy> {
        let free = |p: &Proxy| p.tid() == 0 && p.block().reported.load(Ordering::Acquire) == 0;
        let proxy = match self.used.iter().position(free) {
            Some(at) => self.used.swap_remove(at),
            None => match altstack::map(MAPPING) {
                0 => return None,
                at => Proxy(at as *mut ProxyBlock),
            },
        };
        let block = ProxyBlock {
            _pad: [0; offset_of!(GsBlock, host)],
            host: KernelThread::new(Role::Proxy),
            hub: AtomicPtr::new(std::ptr::from_ref(hub).cast_mut()),
            state: AtomicU32::new(IDLE),
            tid: AtomicI32::new(0),
            reported: AtomicU32::new(0),
            next_report: AtomicPtr::default(),
            slot: slot as u32,
            command: Command::default(),
            reply: Reply::default(),
            temporary: [0; 3],
        };
        // SAFETY: fresh memory, or that of a proxy that is gone and on no list.
        unsafe { proxy.0.write(block) };
        Some(proxy)
    }

    /// For a proxy that was told to exit.
    pub fn give_back(&mut self, proxy: Proxy) {
        self.used.push(proxy);
    }

    /// In a forked child no proxy exists: takes back `proxy` at once.
    pub fn reclaim(&mut self, proxy: Proxy) {
        proxy.block().tid.store(0, Ordering::Relaxed);
        proxy.block().reported.store(0, Ordering::Relaxed);
        self.used.push(proxy);
    }

    /// In a forked child: the same for all that were about to end.
    pub fn reclaim_all(&mut self) {
        for proxy in std::mem::take(&mut self.used) {
            self.reclaim(proxy);
        }
    }
}

/// Starts the kernel thread of a new guest thread with the kernel mask `mask`; its tid or an
/// error. All signals must be blocked by the caller.
pub fn spawn(proxy: Proxy, mask: SigSet) -> i64 {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    // SAFETY: the block is fresh and its stack unused; the new kernel thread runs `start` on it
    // with the block as argument, and never returns. fs is 0 there: a stray use of thread-local
    // storage faults rather than corrupting the executor's.
    unsafe {
        proxy.set_first_mask(mask);
        let tid_word = proxy.block().tid.as_ptr();
        super::swap::clone_onto(
            flags as u64,
            proxy.block().stack_top(),
            tid_word,
            proxy.0,
            start,
        )
    }
}

/// Where a proxy begins; `temporary[0]` is its first mask.
pub(super) extern "C" fn start(block: *mut ProxyBlock) -> ! {
    let base = block as u64;
    // SAFETY: sets this kernel thread's own gs; signals are blocked until it is set.
    unsafe {
        crate::syscall!(libc::SYS_arch_prctl, ARCH_SET_GS, base);
        altstack::install(base + BLOCK_ROOM as u64, MAPPING - BLOCK_ROOM - STACK);
        set_kernel_mask(SigSet((*block).temporary[0]));
    }
    serve(block)
}

/// Where the process's first kernel thread goes on as a proxy, after the swap.
pub(super) extern "C" fn start_main(block: *mut ProxyBlock) -> ! {
    // SAFETY: the executor now lives on another kernel thread; this one gives up its fs and has
    // its tid word cleared at its end like any proxy.
    unsafe {
        crate::syscall!(libc::SYS_arch_prctl, ARCH_SET_FS, 0);
        crate::syscall!(libc::SYS_set_tid_address, (*block).tid.as_ptr());
    }
    start(block)
}

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;

fn serve(block: *mut ProxyBlock) -> ! {
    // SAFETY: the block is this proxy's own; see `Proxy::block`.
    let shared = unsafe { &*block };
    loop {
        let state = shared.state.load(Ordering::Acquire);
        if state != POSTED {
            futex_wait(&shared.state, state, None);
            continue;
        }
        // SAFETY: the executor has handed the command over.
        let command = unsafe { (*block).command };
        let reply = carry_out(shared, &command);
        // SAFETY: the executor reads the reply only after DONE.
        unsafe { (*block).reply = reply };
        shared.state.store(DONE, Ordering::Release);
        if command.waited_for {
            futex_wake(&shared.state);
        } else {
            shared.report();
        }
    }
}

fn carry_out(block: &ProxyBlock, command: &Command) -> Reply {
    let masked = command.mask.is_some_and(|mask| set_mask(block, mask));
    let mut reply = Reply {
        value: 0,
        aborted: false,
        masked,
    };
    // SAFETY: the guest's own call, checked by the table, or one of the engine's.
    unsafe {
        match command.task {
            Task::Interruptible => {
                let ended = blocking::call(command.nr, command.args);
                reply.value = ended.value;
                reply.aborted = ended.aborted != 0;
            }
            Task::Plain => reply.value = crate::sys::call(command.nr, command.args),
            Task::Mask => {}
            Task::Exit => exit(block, command.args[0]),
        }
    }
    reply
}

/// Sets the mask unless a signal is in hand already: then all stays blocked until the executor
/// has dealt with that one.
fn set_mask(block: &ProxyBlock, mask: SigSet) -> bool {
    set_kernel_mask(SigSet::ALL);
    if block.host.any() {
        return false;
    }
    set_kernel_mask(mask);
    true
}

fn exit(block: &ProxyBlock, status: u64) -> ! {
    set_kernel_mask(SigSet::ALL);
    // A signal for the process that this thread took and can't handle any more goes to another.
    block.host.drain(|info: Siginfo| {
        if info.code() != siginfo::SI_TKILL {
            siginfo::requeue(0, &info);
        }
    });
    // SAFETY: ends this kernel thread; the kernel then clears the tid word. The robust list was
    // the executor's to walk, and its memory may be in use for something else by now.
    unsafe {
        crate::syscall!(libc::SYS_set_robust_list, 0, 24);
        crate::syscall!(libc::SYS_exit, status);
    }
    loop {
        std::hint::spin_loop();
    }
}
