//! The engine's signal handlers, and what the kernel is told about each signal.
//!
//! The kernel does what it can do itself: a signal that the guest ignores or leaves at its
//! default is given to the kernel as it is, so stops, deaths and core dumps are the kernel's own.
//! A signal for which the guest has a handler gets [`entry`], with the flags that matter to the
//! kernel (restarting, child stops). The synchronous ones always have it; and so do, where deaths
//! must be seen coming (*hooked*), those that kill by default: the engine then dies by itself, at a
//! place that can be found again.
//!
//! Handlers may interrupt anything, with the guest's fs base loaded: no thread-local storage, no
//! allocation, no locks.

use std::arch::{asm, naked_asm};

use crate::context::{Fault, GsBlock};
use crate::host::kernel_thread::{KernelThread, Role};
use crate::host::proxy::ProxyBlock;
use crate::host::siginfo::Siginfo;
use crate::host::sigset::SigSet;
use crate::host::{blocking, copy, crash, hub, switch};
use crate::layout;

/// `struct sigaction` as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: SigSet,
}

pub const SA_RESTORER: u64 = 0x0400_0000;

/// What is blocked while a handler runs. The kick is: one that came in the middle of another handler would find a pc
/// outside of translated code and take ticks from memory that are in a register just then.
const IN_HANDLERS: SigSet = SigSet::ASYNCHRONOUS.union(SigSet::only(super::hub::KICK));

/// Asks the kernel.
pub fn kernel_action(sig: i32) -> Option<Action> {
    let mut action = Action::default();
    // SAFETY: only asks; `action` has the kernel's layout.
    let ret = unsafe { crate::syscall!(libc::SYS_rt_sigaction, sig, 0, &raw mut action, 8) };
    (ret == 0).then_some(action)
}

/// Tells the kernel.
pub fn set_kernel_action(sig: i32, action: &Action) -> i64 {
    // SAFETY: `action` has the kernel's layout and its handler, if any, is [`entry`].
    unsafe {
        crate::syscall!(
            libc::SYS_rt_sigaction,
            sig,
            std::ptr::from_ref(action),
            0,
            8
        )
    }
}

/// What the kernel shall do so that the guest's `action` comes true. `hooked`: see above.
pub fn set_for_guest(sig: i32, action: &Action, hooked: bool) -> i64 {
    let synchronous = SigSet::SYNCHRONOUS.contains(sig);
    let killing = action.handler == libc::SIG_DFL as u64;
    let default = killing || action.handler == libc::SIG_IGN as u64;
    let hooked = hooked && killing && SigSet::FATAL.contains(sig);
    let passed = (libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT) as u64;
    if default && !synchronous && !hooked {
        let as_is = Action {
            handler: action.handler,
            flags: action.flags & passed,
            ..Action::default()
        };
        return set_kernel_action(sig, &as_is);
    }
    let mut flags = action.flags & (passed | libc::SA_RESTART as u64);
    flags |= (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | SA_RESTORER;
    if synchronous && sig != super::hub::KICK {
        // A fault inside a handler shall be reported, not kill.
        flags |= libc::SA_NODEFER as u64;
    }
    if default {
        // What is ignored, or isn't looked at before the guest changes its mind, has interrupted nothing.
        flags |= libc::SA_RESTART as u64;
    }
    if sig == super::hub::KICK {
        // A late kick must not disturb the executor's own calls.
        flags |= libc::SA_RESTART as u64;
    }
    let host = Action {
        handler: entry as *const () as u64,
        flags,
        restorer: restorer as *const () as u64,
        mask: IN_HANDLERS,
    };
    set_kernel_action(sig, &host)
}

/// Dies by `sig` as the kernel would have killed the guest: same status, same core bit.
pub fn die_by(sig: i32) -> ! {
    set_kernel_action(sig, &Action::default());
    // SAFETY: sends this kernel thread a signal whose default action ends the process.
    unsafe {
        let (pid, tid) = (
            crate::syscall!(libc::SYS_getpid),
            crate::syscall!(libc::SYS_gettid),
        );
        let all_but = SigSet::ALL.minus(SigSet::only(sig));
        crate::syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all_but,
            0,
            8
        );
        crate::syscall!(libc::SYS_tgkill, pid, tid, sig);
        // The first process of a pid namespace is spared what is sent, but not its own faults.
        if pid == 1 {
            raise_fault(sig);
        }
        // Only a signal whose default isn't death comes here.
        crate::syscall!(libc::SYS_exit_group, 128 + sig);
    }
    unreachable!("exit_group returned")
}

/// Does what raises `sig`, whose action is the default and which isn't blocked. Returns for signals that no
/// instruction raises.
///
/// # Safety
/// The process is to end.
unsafe fn raise_fault(sig: i32) {
    // SAFETY: each of these ends the process.
    unsafe {
        match sig {
            libc::SIGSEGV => asm!("mov byte ptr [0], 0"),
            libc::SIGILL => asm!("ud2"),
            libc::SIGFPE => {
                asm!("xor edx, edx", "xor ecx, ecx", "div ecx", out("eax") _, out("ecx") _, out("edx") _)
            }
            libc::SIGTRAP => asm!("int3"),
            libc::SIGBUS => {
                // A page behind the end of its file.
                let name = c"none".as_ptr();
                let file = crate::syscall!(libc::SYS_memfd_create, name, 0);
                let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
                let page = crate::syscall!(libc::SYS_mmap, 0, 4096, prot, flags, file, 0);
                if page > 0 {
                    std::ptr::read_volatile(page as *const u8);
                }
            }
            _ => {}
        }
    }
}

#[unsafe(naked)]
extern "C" fn restorer() {
    naked_asm!("mov eax, 15", "syscall")
}

/// What the kernel calls. The guest may have alignment checks on: off before any Rust code.
#[unsafe(naked)]
extern "C" fn entry(_sig: i32, _info: *mut Siginfo, _context: *mut Context) {
    naked_asm!(
        "pushfq",
        "and qword ptr [rsp], -0x40001",
        "popfq",
        "jmp {handle}",
        handle = sym handle,
    )
}

/// The kernel's `struct ucontext`, as far as handlers use it.
#[repr(C)]
struct Context {
    flags: u64,
    link: u64,
    stack: [u64; 3],
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags, segments, err, trapno,
    /// oldmask, cr2, fpstate, reserved.
    machine: [u64; 32],
    mask: SigSet,
}
const C_RAX: usize = 13;
const C_RBP: usize = 10;
/// Where each general register is, in the hardware's numbering.
const C_GPR: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
const C_RIP: usize = 16;
const C_ERR: usize = 19;
const C_TRAPNO: usize = 20;
const C_CR2: usize = 22;

fn gs_base() -> u64 {
    let base;
    // SAFETY: reads the gs base; the kernel enables the instruction wherever clew runs.
    unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

extern "C" fn handle(sig: i32, info: *mut Siginfo, context: *mut Context) {
    // SAFETY: the kernel passes a siginfo and a ucontext that live until the handler returns.
    let (info, context) = unsafe { (&*info, &mut *context) };
    let base = gs_base();
    if base == 0 {
        crash::fault(sig, info, context.machine[C_RIP], context.machine[C_RBP]);
    }
    // SAFETY: gs is set before handlers are installed and points to a block with this header at
    // this offset, on every kernel thread of the engine.
    let header =
        unsafe { &*((base + std::mem::offset_of!(GsBlock, host) as u64) as *const KernelThread) };
    let raised = info.code() > 0 && SigSet::SYNCHRONOUS.contains(sig);
    match header.role() {
        Role::Executor => {
            let gs = base as *mut GsBlock;
            if raised {
                fault(gs, sig, info, context)
            } else {
                on_executor(gs, header, info, context)
            }
        }
        Role::Proxy if !raised => on_proxy(base as *const ProxyBlock, header, info, context),
        _ => crash::fault(sig, info, context.machine[C_RIP], context.machine[C_RBP]),
    }
}

fn on_executor(gs: *mut GsBlock, header: &KernelThread, info: &Siginfo, context: &mut Context) {
    if !hub::is_kick(info) {
        header.take(info);
        context.mask = SigSet::ASYNCHRONOUS;
        redirect(context);
    }
    // SAFETY: the block outlives the executor; this handler interrupted its owner, which reads
    // these fields with volatile loads.
    unsafe {
        if layout::CODE_CACHE.contains(&context.machine[C_RIP]) {
            let machine = &raw mut context.machine;
            let register = |number: u8| &raw mut (*machine)[C_GPR[number as usize]];
            (*gs).kick_in_cache((*machine)[C_RIP], register);
        } else {
            (*gs).kick();
        }
    }
}

fn on_proxy(
    block: *const ProxyBlock,
    header: &KernelThread,
    info: &Siginfo,
    context: &mut Context,
) {
    // One for the executor, which was this kernel thread a moment ago.
    if hub::is_kick(info) {
        return;
    }
    header.take(info);
    context.mask = SigSet::ALL;
    redirect(context);
    // SAFETY: a proxy's gs points to its own block; blocks and the hub are never unmapped.
    unsafe { (*block).report() };
}

fn redirect(context: &mut Context) {
    if let Some((rip, rax)) = blocking::interrupted(context.machine[C_RIP], context.machine[C_RAX])
    {
        context.machine[C_RIP] = rip;
        context.machine[C_RAX] = rax;
    }
}

/// An instruction raised `sig` on the executor: in the engine's copy routine, in the guest's
/// translated code, or by a bug.
fn fault(gs: *mut GsBlock, sig: i32, info: &Siginfo, context: &mut Context) {
    let rip = context.machine[C_RIP];
    if let Some(failed) = copy::failed(rip) {
        context.machine[C_RIP] = failed;
    } else if layout::CODE_CACHE.contains(&rip) {
        // SAFETY: translated code is running, so nothing else uses the block.
        unsafe {
            (*gs).fault = Fault {
                signo: sig,
                code: info.code(),
                addr: info.addr(),
                trapno: context.machine[C_TRAPNO],
                err: context.machine[C_ERR],
                cr2: context.machine[C_CR2],
                host_pc: rip,
            };
        }
        context.machine[C_RIP] = switch::exit_fault_address();
    } else {
        crash::fault(sig, info, rip, context.machine[C_RBP]);
    }
}
