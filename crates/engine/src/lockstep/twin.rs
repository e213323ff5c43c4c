//! The native side: a fork of the engine's process that executes the guest's own code, one
//! instruction at a time.
//!
//! The twin is traced by the executor's kernel thread. It makes no system call of the guest's and
//! is killed at the end of its segment. Its end sends no signal (the guest could see it), and its
//! stops send none either, since SIGCHLD is told to be silent about stops meanwhile.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use super::compare::State;
use super::native::{Barrier, Flow, Native};
use crate::context::{GsBlock, Xsave};
use crate::executor::Executor;
use crate::host::handlers::{self, Action};
use crate::host::sigset::SigSet;
use crate::host::switch;
use crate::memory::{Backing, Fetch, FileIdentity, Mapping, Memory};
use crate::sys::{self, Ret};
use crate::syscall;

/// How many addresses of the way are kept for a report.
const TRAIL: usize = 256;
/// Largest shared mapping that the twin gets a copy of.
const LARGEST_COPY: u64 = 256 << 20;
/// Shared files whose views are kept together.
const MOST_COPIES: usize = 32;
/// Room for the XSAVE area of any CPU.
const AREA: usize = 16 << 10;
const NT_X86_XSTATE: u64 = 0x202;
/// `offsetof(struct user, u_debugreg)`.
const DEBUG_REGISTERS: u64 = 848;

/// Why the twin stands where it stands.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// The ticks asked for.
    Ticks,
    /// Before an instruction that it mustn't execute.
    Barrier(Barrier),
    /// On an instruction that raised a signal.
    Fault(i32),
    /// Before an instruction that reads flags in which the original differs.
    SpoiledFlags(u32),
    /// It is gone, which can't be; the wait status.
    Gone(i32),
}

pub struct Twin {
    pid: i64,
    pub regs: libc::user_regs_struct,
    /// Since the stretch began.
    pub ticks: u64,
    pub instructions: u64,
    pub instructions_at_tick: u64,
    /// Flags in which the original may differ, because nobody has read them since.
    pub tolerated: u32,
    /// Where it came along, newest last.
    pub trail: Vec<u64>,
    decoded: RefCell<FxHashMap<u64, Native>>,
    /// What to put back at its end.
    child_action: Option<Action>,
    affinity: [u64; 16],
}

impl Twin {
    /// A twin that stands where the current thread does. The error is an errno.
    pub fn fork(ex: &mut Executor) -> Result<Twin, i32> {
        let child_action = silence_stops();
        let affinity = pin();
        // SAFETY: a fork; the child runs only what follows here and in `become_twin`, on its copy
        // of this stack, until the tracer takes over. Exit signal 0: nobody is told of its end.
        let pid = unsafe { syscall!(libc::SYS_clone, 0) };
        if pid == 0 {
            become_twin(&ex.memory);
        }
        let mut twin = Twin {
            pid,
            // SAFETY: plain numbers.
            regs: unsafe { std::mem::zeroed() },
            ticks: 0,
            instructions: 0,
            instructions_at_tick: 0,
            tolerated: 0,
            trail: Vec::with_capacity(TRAIL),
            decoded: RefCell::default(),
            child_action,
            affinity,
        };
        if sys::is_err(pid) {
            twin.put_back();
            return Err(-pid as i32);
        }
        match twin.wait() {
            Ok(libc::SIGSTOP) => {}
            _ => {
                twin.end();
                return Err(libc::EPERM);
            }
        }
        twin.load(ex.gs);
        Ok(twin)
    }

    fn ptrace(&self, request: i32, addr: u64, data: u64) -> Ret {
        // SAFETY: requests here touch the twin, or buffers that their callers own.
        unsafe { syscall!(libc::SYS_ptrace, request, self.pid, addr, data) }
    }

    /// Waits for a stop: its signal, or the wait status of the end.
    fn wait(&self) -> Result<i32, i32> {
        let mut status = 0i32;
        let ret = loop {
            // SAFETY: the kernel writes one int.
            let ret =
                unsafe { syscall!(libc::SYS_wait4, self.pid, &raw mut status, libc::__WALL, 0) };
            if ret != sys::err(libc::EINTR) {
                break ret;
            }
        };
        if ret == self.pid && libc::WIFSTOPPED(status) {
            Ok(libc::WSTOPSIG(status))
        } else {
            Err(status)
        }
    }

    /// Gives it the guest's registers.
    fn load(&mut self, gs: &mut GsBlock) {
        self.ptrace(libc::PTRACE_SETOPTIONS, 0, libc::PTRACE_O_EXITKILL as u64);
        self.read_regs();
        let guest = &gs.regs;
        let regs = &mut self.regs;
        let g = guest.gpr;
        (regs.rax, regs.rcx, regs.rdx, regs.rbx) = (g[0], g[1], g[2], g[3]);
        (regs.rsp, regs.rbp, regs.rsi, regs.rdi) = (g[4], g[5], g[6], g[7]);
        (regs.r8, regs.r9, regs.r10, regs.r11) = (g[8], g[9], g[10], g[11]);
        (regs.r12, regs.r13, regs.r14, regs.r15) = (g[12], g[13], g[14], g[15]);
        (regs.rip, regs.eflags) = (guest.rip, guest.rflags);
        (regs.fs_base, regs.gs_base) = (guest.fs_base, guest.gs_base);
        // It stands in a system call, which must not be made again.
        regs.orig_rax = u64::MAX;
        let mut guest = Xsave::default();
        switch::save_extended(gs, &mut guest);
        // The kernel takes the whole area or nothing: what the guest isn't shown stays.
        let (mut area, len) = self.read_area();
        let components = area[512] | guest.0[512];
        area[..guest.0.len()].copy_from_slice(&guest.0);
        area[512] = components;
        let vector = libc::iovec {
            iov_base: area.as_mut_ptr().cast(),
            iov_len: len,
        };
        self.ptrace(
            libc::PTRACE_SETREGSET,
            NT_X86_XSTATE,
            &raw const vector as u64,
        );
        self.ptrace(libc::PTRACE_SETREGS, 0, &raw const self.regs as u64);
    }

    fn read_regs(&mut self) {
        let into = &raw mut self.regs as u64;
        self.ptrace(libc::PTRACE_GETREGS, 0, into);
    }

    /// Its extended state in the standard XSAVE format, and how long that is.
    fn read_area(&self) -> ([u8; AREA], usize) {
        let mut area = [0u8; AREA];
        let mut vector = libc::iovec {
            iov_base: area.as_mut_ptr().cast(),
            iov_len: area.len(),
        };
        self.ptrace(
            libc::PTRACE_GETREGSET,
            NT_X86_XSTATE,
            &raw mut vector as u64,
        );
        (area, vector.iov_len)
    }

    /// Its registers as a comparison wants them.
    pub fn state(&self) -> State {
        let (area, _) = self.read_area();
        State::of_twin(&self.regs, &area)
    }

    pub fn start_stretch(&mut self) {
        self.ticks = 0;
        self.instructions_at_tick = self.instructions;
    }

    /// Executes until `ticks` ticks are counted, or something comes before.
    pub fn advance(&mut self, memory: &Memory, ticks: u64) -> Stop {
        loop {
            let pc = self.regs.rip;
            if self.trail.len() == TRAIL {
                self.trail.drain(..TRAIL / 2);
            }
            self.trail.push(pc);
            let native = self.native(memory, pc);
            if let Some(native) = native {
                if let Some(barrier) = native.barrier {
                    return Stop::Barrier(barrier);
                }
                if native.reads & self.tolerated != 0 {
                    return Stop::SpoiledFlags(native.reads & self.tolerated);
                }
            }
            let stepped = match native {
                Some(native) if native.repeats => self.run_to(native.next),
                _ => self.step(),
            };
            if let Err(stop) = stepped {
                return stop;
            }
            self.instructions += 1;
            let Some(native) = native else { continue };
            self.tolerated &= !native.writes;
            if native.pushes_flags {
                self.clean_pushed_flags();
            }
            if is_tick(memory, pc, &native, self.regs.rip) {
                self.ticks += 1;
                self.instructions_at_tick = self.instructions;
                if self.ticks == ticks {
                    return Stop::Ticks;
                }
            }
        }
    }

    /// The instruction at `pc`; None if there is none, and executing there will fault.
    fn native(&self, memory: &Memory, pc: u64) -> Option<Native> {
        if let Some(&native) = self.decoded.borrow().get(&pc) {
            return Some(native);
        }
        let Fetch::Executable(code) = memory.fetch(pc) else {
            return None;
        };
        let mut bytes = [0u8; 15];
        let len = self.read(pc, &mut bytes);
        let native = Native::decode(&bytes[..len], pc)?;
        if code.immutable {
            self.decoded.borrow_mut().insert(pc, native);
        }
        Some(native)
    }

    /// Behind the instruction at hand.
    pub fn next_pc(&self, memory: &Memory) -> u64 {
        let pc = self.regs.rip;
        self.native(memory, pc).map_or(pc, |native| native.next)
    }

    fn step(&mut self) -> Result<(), Stop> {
        loop {
            self.ptrace(libc::PTRACE_SINGLESTEP, 0, 0);
            if self.stopped()? {
                return Ok(());
            }
        }
    }

    /// Runs on until `pc` is reached, by a breakpoint of the hardware.
    fn run_to(&mut self, pc: u64) -> Result<(), Stop> {
        const ENABLE_FIRST: u64 = 1;
        let start = self.regs.rip;
        self.ptrace(libc::PTRACE_POKEUSER, DEBUG_REGISTERS, pc);
        if self.ptrace(libc::PTRACE_POKEUSER, DEBUG_REGISTERS + 56, ENABLE_FIRST) != 0 {
            // No such registers here: one round after the other.
            while self.regs.rip == start {
                self.step()?;
            }
            return Ok(());
        }
        let result = loop {
            self.ptrace(libc::PTRACE_CONT, 0, 0);
            match self.stopped() {
                Ok(false) => {}
                Ok(true) => break Ok(()),
                Err(stop) => break Err(stop),
            }
        };
        self.ptrace(libc::PTRACE_POKEUSER, DEBUG_REGISTERS + 56, 0);
        result
    }

    /// Reads where it stopped. False: a signal from outside, which is none of its business.
    fn stopped(&mut self) -> Result<bool, Stop> {
        let sig = self.wait().map_err(Stop::Gone)?;
        self.read_regs();
        if sig == libc::SIGTRAP {
            return Ok(true);
        }
        // SAFETY: plain numbers, written by the kernel.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        self.ptrace(libc::PTRACE_GETSIGINFO, 0, &raw mut info as u64);
        if SigSet::SYNCHRONOUS.contains(sig) && info.si_code > 0 {
            return Err(Stop::Fault(sig));
        }
        Ok(false)
    }

    /// Single steps are made with the trap flag, which `pushf` shows.
    fn clean_pushed_flags(&self) {
        let mut word = [0u8; 2];
        if self.read(self.regs.rsp, &mut word) == 2 {
            word[1] &= !1;
            self.write(self.regs.rsp, &word);
        }
    }

    /// Reads its memory; how many bytes could be read.
    pub fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let here = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let there = libc::iovec {
            iov_base: at as *mut _,
            iov_len: into.len(),
        };
        // SAFETY: the kernel writes into `into` at most.
        let n = unsafe {
            syscall!(
                libc::SYS_process_vm_readv,
                self.pid,
                &raw const here,
                1,
                &raw const there,
                1,
                0
            )
        };
        if n > 0 {
            return n as usize;
        }
        // An instruction at the end of memory: what is on its page.
        let room = (4096 - at % 4096) as usize;
        if room < into.len() {
            self.read(at, &mut into[..room])
        } else {
            0
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let here = libc::iovec {
            iov_base: bytes.as_ptr() as *mut _,
            iov_len: bytes.len(),
        };
        let there = libc::iovec {
            iov_base: at as *mut _,
            iov_len: bytes.len(),
        };
        // SAFETY: changes the twin's memory only.
        unsafe {
            syscall!(
                libc::SYS_process_vm_writev,
                self.pid,
                &raw const here,
                1,
                &raw const there,
                1,
                0
            )
        };
    }

    pub fn pid(&self) -> i64 {
        self.pid
    }

    /// Kills it and leaves no trace.
    pub fn end(self) {
        // SAFETY: it is our own child and still to be waited for, so the id is its.
        unsafe { syscall!(libc::SYS_kill, self.pid, libc::SIGKILL) };
        while self.wait().is_ok() {}
        self.put_back();
    }

    fn put_back(&self) {
        if let Some(action) = &self.child_action {
            handlers::set_kernel_action(libc::SIGCHLD, action);
        }
        // SAFETY: the kernel reads the mask.
        unsafe { syscall!(libc::SYS_sched_setaffinity, 0, 128, self.affinity.as_ptr()) };
    }
}

/// Jumps to the same or a lower address, returns, and other indirect branches tick; so does a
/// direct branch from one body of code to another.
fn is_tick(memory: &Memory, pc: u64, native: &Native, went: u64) -> bool {
    match native.flow {
        Flow::Next => false,
        Flow::Indirect => true,
        Flow::Direct { target, call } => {
            let taken = call || went != native.next;
            taken && ((!call && target <= pc) || body(memory, pc) != body(memory, target))
        }
    }
}

/// The image's code that `pc` belongs to; None for all code that may change.
fn body(memory: &Memory, pc: u64) -> Option<(u64, u64)> {
    match memory.fetch(pc) {
        Fetch::Executable(code) if code.immutable => Some((code.range.start, code.range.end)),
        _ => None,
    }
}

/// Stops of children shall send no SIGCHLD; what to put back afterwards.
fn silence_stops() -> Option<Action> {
    let action = handlers::kernel_action(libc::SIGCHLD)?;
    let mut silent = action;
    silent.flags |= libc::SA_NOCLDSTOP as u64;
    handlers::set_kernel_action(libc::SIGCHLD, &silent);
    Some(action)
}

/// Keeps this kernel thread (and a child of it) on one processor: changing sides is ten times
/// faster there. What to put back afterwards.
fn pin() -> [u64; 16] {
    let mut all = [0u64; 16];
    let mut one = [0u64; 16];
    // SAFETY: the kernel reads or writes at most the 128 bytes of a mask.
    unsafe {
        syscall!(libc::SYS_sched_getaffinity, 0, 128, all.as_mut_ptr());
        let mut cpu = 0u32;
        syscall!(libc::SYS_getcpu, &raw mut cpu, 0, 0);
        one[cpu as usize / 64 % 16] = 1 << (cpu % 64);
        syscall!(libc::SYS_sched_setaffinity, 0, 128, one.as_ptr());
    }
    all
}

/// In the child: waits for its tracer with the guest's memory as it would be natively.
fn become_twin(memory: &Memory) -> ! {
    let blocked = SigSet::ASYNCHRONOUS;
    // SAFETY: changes this process only, which is the twin's alone.
    unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const blocked,
            0,
            8
        );
        syscall!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut copies = [None; MOST_COPIES];
        for mapping in memory.iter() {
            make_native(mapping, &mut copies);
        }
        if syscall!(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0) == 0 {
            let (pid, tid) = (syscall!(libc::SYS_getpid), syscall!(libc::SYS_gettid));
            syscall!(libc::SYS_tgkill, pid, tid, libc::SIGSTOP);
        }
        syscall!(libc::SYS_exit_group, 1);
    }
    unreachable!("exit_group returned")
}

/// A copy of a file that is mapped shared: which, and the copy's descriptor.
type Copy = Option<(FileIdentity, i64)>;

/// Executable for real, and never shared with the original.
///
/// # Safety
/// In the twin only.
unsafe fn make_native(mapping: &Mapping, copies: &mut [Copy; MOST_COPIES]) {
    let (start, len) = (mapping.start, mapping.len());
    // SAFETY: changes guest memory of the twin.
    unsafe {
        if mapping.shared && len <= LARGEST_COPY {
            copy_shared(mapping, copies);
        }
        // What is writable may be kept from being written because of translated code.
        let native = mapping.executable() || mapping.can(libc::PROT_WRITE);
        if native && mapping.backing != Backing::Stack {
            syscall!(
                libc::SYS_mprotect,
                start,
                len,
                mapping.prot | libc::PROT_READ
            );
        }
    }
}

/// Replaces a shared mapping by one of a copy; views of one file stay views of one.
///
/// # Safety
/// In the twin only.
unsafe fn copy_shared(mapping: &Mapping, copies: &mut [Copy; MOST_COPIES]) {
    let (file, offset) = match mapping.backing {
        Backing::File { file, offset, .. } => (Some(file), offset),
        _ => (None, 0),
    };
    let known = copies.iter().flatten().find(|copy| Some(copy.0) == file);
    // SAFETY: reads and replaces guest memory of the twin. Where the file ends, so does its copy.
    unsafe {
        let fd = match known {
            Some(copy) => copy.1,
            None => syscall!(libc::SYS_memfd_create, c"clew-twin".as_ptr(), 0),
        };
        if sys::is_err(fd) {
            return;
        }
        syscall!(libc::SYS_pwrite64, fd, mapping.start, mapping.len(), offset);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        syscall!(
            libc::SYS_mmap,
            mapping.start,
            mapping.len(),
            mapping.prot,
            flags,
            fd,
            offset
        );
        if let (Some(file), None) = (file, known)
            && let Some(free) = copies.iter_mut().find(|copy| copy.is_none())
        {
            *free = Some((file, fd));
        }
    }
}
