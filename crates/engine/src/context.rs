//! The registers of a guest thread, and the block of memory at `gs` through which translated
//! code reaches the engine.
//!
//! Emitted code contains addresses in [`GsBlock`], which is at the same place in every process, and
//! no other engine address, so that it can be saved to a file and mapped by another process. The layout is part of the engine version that
//! keys saved translations.

use std::mem::offset_of;

use crate::cache::CodeCache;
use crate::host::hub::Hub;
use crate::host::kernel_thread::KernelThread;
use crate::layout;
use crate::translate::emit;

pub const RAX: usize = 0;
pub const RCX: usize = 1;
pub const RDX: usize = 2;
pub const RBX: usize = 3;
pub const RSP: usize = 4;
pub const RBP: usize = 5;
pub const RSI: usize = 6;
pub const RDI: usize = 7;
pub const R8: usize = 8;
pub const R9: usize = 9;
pub const R10: usize = 10;
pub const R11: usize = 11;

/// General registers of a guest thread, in the hardware's numbering.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regs {
    pub gpr: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
    pub fs_base: u64,
    /// What the guest believes its gs base to be; the real one is the engine's.
    pub gs_base: u64,
}

impl Regs {
    /// All of them, in this order: general registers, rip, rflags, fs and gs bases.
    pub fn words(&self) -> &[u64; 20] {
        // SAFETY: twenty u64 and nothing else, by `repr(C)`.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    pub fn words_mut(&mut self) -> &mut [u64; 20] {
        // SAFETY: as above; every value is valid.
        unsafe { &mut *std::ptr::from_mut(self).cast() }
    }
}
const _: () = assert!(size_of::<Regs>() == 20 * 8);

/// x87, SSE and AVX state in the standard (non-compacted) XSAVE format:
/// 512 bytes legacy area, 64 bytes header, 256 bytes of upper halves.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct Xsave(pub [u8; 832]);

impl Xsave {
    /// From bytes that a stranger may have made: only what restoring it can't fault on.
    pub fn sound(bytes: &[u8]) -> Option<Xsave> {
        let mut area: [u8; 832] = bytes.try_into().ok()?;
        // MXCSR without reserved bits, and a header that names nothing but x87, SSE and AVX.
        area[26..28].fill(0);
        area[512] &= 7;
        area[513..576].fill(0);
        Some(Xsave(area))
    }
}

impl Default for Xsave {
    /// The state that exec gives: FCW 0x37f, MXCSR 0x1f80, everything else clear.
    fn default() -> Xsave {
        let mut area = [0; 832];
        area[0..2].copy_from_slice(&0x37fu16.to_le_bytes());
        area[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        Xsave(area)
    }
}

/// Why translated code came back to the engine. Stored by the exit path in [`GsBlock::exit_kind`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// A direct branch whose target isn't linked; `exit_arg` is the exit stub's address.
    Link = 0,
    /// An indirect branch that found no stub; `exit_arg` is the guest target.
    Indirect = 1,
    /// The tick budget is used up; `exit_arg` is the exit stub's address.
    Budget = 2,
    /// A `syscall` instruction; `regs.rip` is the instruction after it.
    Syscall = 3,
    /// An instruction the engine answers itself (`cpuid`, `xgetbv`, ...); `exit_arg` is its guest pc.
    Emulate = 4,
    /// A head of mutable code that was invalidated; `exit_arg` is the guest pc.
    Stale = 5,
    /// A synchronous fault in translated code; [`GsBlock::fault`] tells which.
    Fault = 6,
    /// Straight-line code ended where no block may follow yet (single steps); `exit_arg` = guest pc.
    Step = 7,
    /// A signal arrived just before the guest would have run; nothing ran.
    Attention = 8,
    /// A breakpoint (`cache::instruments`); `regs.rip` is the instruction, nothing of which has run.
    Break = 9,
    /// An instruction that may touch watched memory; `regs.rip` is it, nothing of it has run.
    Watch = 10,
}
pub const EXIT_KINDS: usize = 11;

impl Exit {
    pub fn from_u32(kind: u32) -> Exit {
        use Exit::*;
        [
            Link, Indirect, Budget, Syscall, Emulate, Stale, Fault, Step, Attention, Break, Watch,
        ][kind as usize]
    }
}

/// Entry points of the exit paths: one for each [`Exit`] but `Attention`, in whose place is
/// `BUDGET_RCX`, and the routines that compare an access with what is watched.
pub const EXIT_ROUTINES: usize = 13;
/// Like [`Exit::Budget`], where rcx was the scratch register and is in `spill[0]`.
pub const BUDGET_RCX: usize = 8;
/// Compares an access at rcx, of [`Checked::len`] bytes, with the ranges that are watched; rcx is in
/// `spill[0]`. Goes on at [`Checked::back`], or leaves with [`Exit::Watch`].
pub const CHECK: usize = 11;
/// The same for a string instruction that repeats: elements of [`Checked::len`] bytes, as many as
/// the guest's rcx says, from there upwards or downwards.
pub const CHECK_STRING: usize = 12;

/// The access that is being compared with what is watched.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    pub len: u64,
    /// Which of [`GsBlock::watched`] it concerns.
    pub list: u64,
    /// Host address to go on at, and the guest pc of the instruction.
    pub back: u64,
    pub pc: u64,
    /// What the routine keeps meanwhile: its end, and flags.
    end: u64,
    flags: u64,
}

/// Ranges of guest memory, in order, disjoint; behind the last one is one at the end of all addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    pub first: *const [u64; 2],
    pub count: u64,
}

/// Answers that translated code takes without leaving the cache: result, and two words of time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Values {
    pub buffer: *mut [u64; 3],
    /// Recorded so far; taken so far.
    pub used: u64,
    /// In replay, how many there are; reaching behind is a divergence.
    pub there: u64,
    pub missing: u64,
}

/// A synchronous fault as the kernel reported it, in guest terms once `rip` is recovered.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fault {
    pub signo: i32,
    pub code: i32,
    pub addr: u64,
    /// `trapno`, `err` and `cr2` of the kernel's sigcontext, copied into the guest's frame.
    pub trapno: u64,
    pub err: u64,
    pub cr2: u64,
    /// Host address of the faulting instruction inside the cache.
    pub host_pc: u64,
}

pub const DISPATCH_SLOTS: usize = 1 << 16;

/// The memory at `gs`. One exists for each executor (so one for each process).
#[repr(C, align(4096))]
pub struct GsBlock {
    /// Ticks left in this turn; translated code decrements it and leaves at exactly zero.
    pub ticks_left: i64,
    /// Where translated code spills guest registers while it needs scratch ones.
    pub spill: [u64; 4],
    /// Target of an indirect branch on its way through the dispatch table.
    pub target: u64,
    /// Host address of the last indirect branch: one to a non-canonical address faults there.
    pub source: u64,
    pub exit_arg: u64,
    pub exit_kind: u32,
    pub mxcsr: u32,
    /// The engine's stack pointer and fs base while the guest runs.
    pub engine_rsp: u64,
    pub engine_fs: u64,
    /// Where to resume in the cache.
    pub resume: u64,
    /// Entry points of the exit paths, by [`Exit`].
    pub exits: [u64; EXIT_ROUTINES],
    /// The host's vdso functions (clock_gettime, gettimeofday, time, getcpu) or 0.
    pub vdso: [u64; 4],
    /// While recording or replaying: the host's own functions, which `vdso` no longer names.
    pub host_vdso: [u64; 4],
    /// Answers of fast time calls: to be written down, or to be given again.
    pub values: Values,
    /// For instruments: an access under examination; what is watched for reads, for writes, for both.
    pub checked: Checked,
    pub watched: [Ranges; 3],
    /// Where the open entry of a trace begins, and rcx before the last string instruction that repeats.
    pub trace_at: u64,
    pub trace_count: u64,
    /// Registers of the current guest thread while the engine runs.
    pub regs: Regs,
    pub ymm: [[u8; 32]; 16],
    pub fault: Fault,
    /// Where the host's vdso writes its answer on the fast path of time calls.
    pub time: [u64; 4],
    /// Set by a host signal handler: something is queued, look before going back to the guest.
    pub attention: u32,
    /// Nonzero while the guest's code runs (between enter and exit).
    pub in_guest: u32,
    /// Ticks taken away from the budget by [`GsBlock::kick`], to keep the count right.
    pub kicked: i64,
    /// The cache whose code runs, for handlers that interrupt it.
    pub code: *const CodeCache,
    /// What signal handlers need to know about the kernel thread they interrupted. Proxies have
    /// the same header at the same offset, see [`crate::host::proxy::ProxyBlock`].
    pub host: KernelThread,
    /// Where proxies report to the executor.
    pub hub: Hub,
    /// For indirect branches: index is the low 16 bits of the target, value the host address of
    /// a stub that compares the whole target.
    pub dispatch: [u64; DISPATCH_SLOTS],
}

pub const TICKS_LEFT: usize = offset_of!(GsBlock, ticks_left);
pub const SPILL: usize = offset_of!(GsBlock, spill);
pub const TARGET: usize = offset_of!(GsBlock, target);
pub const SOURCE: usize = offset_of!(GsBlock, source);
pub const EXIT_ARG: usize = offset_of!(GsBlock, exit_arg);
pub const EXITS: usize = offset_of!(GsBlock, exits);
pub const DISPATCH: usize = offset_of!(GsBlock, dispatch);
pub const CHECKED_LEN: usize = offset_of!(GsBlock, checked) + offset_of!(Checked, len);
pub const CHECKED_LIST: usize = offset_of!(GsBlock, checked) + offset_of!(Checked, list);
pub const CHECKED_BACK: usize = offset_of!(GsBlock, checked) + offset_of!(Checked, back);
pub const CHECKED_PC: usize = offset_of!(GsBlock, checked) + offset_of!(Checked, pc);
pub const CHECKED_END: usize = offset_of!(GsBlock, checked) + offset_of!(Checked, end);
pub const CHECKED_FLAGS: usize = offset_of!(GsBlock, checked) + offset_of!(Checked, flags);

pub const TRACE_AT: usize = offset_of!(GsBlock, trace_at);
pub const TRACE_COUNT: usize = offset_of!(GsBlock, trace_count);

impl GsBlock {
    /// Maps the block at its place, all pages present: a fault at each first use would cost more.
    /// None if there is no memory, or one exists already.
    pub fn map() -> Option<&'static mut GsBlock> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_POPULATE
            | libc::MAP_FIXED_NOREPLACE;
        let (place, len) = (layout::GS_BLOCK, size_of::<GsBlock>());
        // SAFETY: NOREPLACE: nothing that exists is touched.
        let at = unsafe { crate::syscall!(libc::SYS_mmap, place, len, prot, flags, -1i64, 0) };
        // SAFETY: page-aligned, large enough, nobody else's; zeroes are a valid block.
        (at == place as i64).then(|| unsafe { &mut *(place as *mut GsBlock) })
    }

    /// Makes the guest leave the cache at its next tick. Only for the executor's own kernel
    /// thread (a handler that interrupted it). A counter that is cut while the engine runs is
    /// harmless: the executor puts it right before it looks at `attention` and enters.
    pub fn kick(&mut self) {
        self.attention = 1;
        self.kicked += cut(&mut self.ticks_left, 1);
    }

    /// The same where translated code was interrupted: the counter may be in a register just then,
    /// for a tick that may not touch flags (in rcx) or for all of a tight loop.
    ///
    /// # Safety
    /// `rip` is in the code cache, and the guest runs: nothing else uses this block or the cache.
    pub unsafe fn kick_in_cache(&mut self, rip: u64, register: impl FnOnce(u8) -> *mut u64) {
        // SAFETY: the kernel was about to fetch from there; regions are mapped in whole pages, and
        // none of the sequences looked for is the first or last thing in one.
        let (before, code) = unsafe {
            (
                std::slice::from_raw_parts((rip - 8) as *const u8, 8),
                std::slice::from_raw_parts(rip as *const u8, 16),
            )
        };
        let (holder, left) = match emit::counter_at(before, code) {
            Some(found) => found,
            None if self.ticks_left == 0 => {
                // SAFETY: `code` is set before guest code is entered, and the cache doesn't change
                // while it runs.
                match unsafe { (*self.code).loop_counter(rip as u32) } {
                    Some(holder) => (holder, 1),
                    None => return self.kick(),
                }
            }
            None => return self.kick(),
        };
        self.attention = 1;
        // SAFETY: the caller's register, of the interrupted context.
        let value = unsafe { &mut *register(holder) };
        let mut counter = *value as i64;
        self.kicked += cut(&mut counter, left);
        *value = counter as u64;
    }
}

/// The tick counter from the engine's side. A handler may interrupt the engine anywhere and move
/// ticks from `ticks_left` to `kicked` (never the other way, and never changing their sum). So the
/// sum is what counts, it is read until both parts fit, and changes are made by adding, in one
/// instruction each: then it doesn't matter when the handler comes.
impl GsBlock {
    /// Ticks left in this turn, whether a kick has taken them away or not.
    pub fn ticks_in_hand(&self) -> i64 {
        loop {
            // SAFETY: plain fields that handlers on this kernel thread write: read them for real.
            let (before, left, after) = unsafe {
                (
                    std::ptr::read_volatile(&raw const self.kicked),
                    std::ptr::read_volatile(&raw const self.ticks_left),
                    std::ptr::read_volatile(&raw const self.kicked),
                )
            };
            if before == after {
                return left + before;
            }
        }
    }

    /// Changes the counter by `ticks`.
    pub fn add_ticks(&mut self, ticks: i64) {
        add(&mut self.ticks_left, ticks);
    }

    /// Gives back what kicks took away. Look at `attention` after this.
    pub fn give_back(&mut self) {
        // SAFETY: as above.
        let kicked = unsafe { std::ptr::read_volatile(&raw const self.kicked) };
        if kicked != 0 {
            add(&mut self.kicked, -kicked);
            add(&mut self.ticks_left, kicked);
        }
    }

    /// What a kick does, for the engine itself: nothing if one has been here.
    pub fn leave_one_tick(&mut self) {
        loop {
            // SAFETY: as above.
            match unsafe { std::ptr::read_volatile(&raw const self.ticks_left) } {
                1 => return,
                left if left > 1 => {
                    add(&mut self.ticks_left, 1 - left);
                    add(&mut self.kicked, left - 1);
                }
                // A handler did it in between, so it was done twice: back, and again.
                _ if self.ticks_in_hand() > 0 => self.give_back(),
                _ => return,
            }
        }
    }

    /// Leaves no ticks: there is no turn.
    pub fn clear_ticks(&mut self) {
        self.add_ticks(-self.ticks_in_hand());
        self.give_back();
    }

    /// Takes the call for attention away, so that code can run on to a place where it can be
    /// followed; whether there was one. Whoever took it sets it again.
    pub fn take_attention(&mut self) -> bool {
        // SAFETY: as above. A handler that comes between the two only says the same once more.
        unsafe {
            let was = std::ptr::read_volatile(&raw const self.attention) != 0;
            if was {
                std::ptr::write_volatile(&raw mut self.attention, 0);
            }
            was
        }
    }
}

/// Adds in one instruction, which a handler on the same kernel thread can't split.
fn add(word: &mut i64, value: i64) {
    // SAFETY: changes the word that the reference is for.
    unsafe {
        std::arch::asm!("add qword ptr [{}], {}", in(reg) word, in(reg) value, options(nostack));
    }
}

/// Lowers a counter to `left`; returns by how much.
fn cut(counter: &mut i64, left: i64) -> i64 {
    let taken = (*counter - left).max(0);
    *counter -= taken;
    taken
}
