//! What exec inherits, and a child that borrows its parent's memory.

use clew_engine::executor::Executor;
use clew_engine::guest::signals::calls::*;
use clew_engine::host::handlers::Action;
use clew_engine::host::sigset::{SigSet, kernel_mask};
use clew_engine::kernel::Outcome;

use crate::Case;
use crate::guest::*;

pub fn cases() -> Vec<Case> {
    crate::passes![
        exec_inherits_mask,
        exec_inherits_ignored,
        exec_from_a_thread,
        failed_exec,
        signal_before_exec,
        vfork_child_leaves_no_trace,
        vfork_with_threads,
    ]
}

/// Ends with status 0 if `line` is in the new program's /proc/self/status.
fn exec_grep(ex: &mut Executor, line: &std::ffi::CStr) -> Outcome {
    let argv = [
        c"grep".as_ptr(),
        c"-qi".as_ptr(),
        line.as_ptr(),
        c"/proc/self/status".as_ptr(),
        std::ptr::null(),
    ];
    let envp = [std::ptr::null::<libc::c_char>()];
    let path = c"/bin/grep".as_ptr();
    ex.call_exec(
        libc::SYS_execve,
        [
            path as u64,
            argv.as_ptr() as u64,
            envp.as_ptr() as u64,
            0,
            0,
            0,
        ],
    )
}

fn blocked() -> SigSet {
    [libc::SIGUSR1, libc::SIGUSR2, libc::SIGSEGV]
        .map(SigSet::only)
        .into_iter()
        .fold(SigSet::NONE, SigSet::union)
}

fn exec_inherits_mask() {
    let mut ex = executor();
    mask(&mut ex, libc::SIG_BLOCK, blocked());
    exec_grep(&mut ex, c"SigBlk:.0000000000000e00");
    panic!("exec failed");
}

fn exec_inherits_ignored() {
    let mut ex = executor();
    // (Not SIGSEGV: grep handles that one itself.)
    for sig in [libc::SIGFPE, libc::SIGUSR1] {
        ex.signals.set_action(
            sig,
            Action {
                handler: libc::SIG_IGN as u64,
                ..Action::default()
            },
        );
    }
    handle(&mut ex, libc::SIGUSR2, 0);
    let ignored = (1..=64).filter(|&sig| ex.signals.action(sig).handler == libc::SIG_IGN as u64);
    let set = ignored.map(SigSet::only).fold(SigSet::NONE, SigSet::union);
    assert!(set.contains(libc::SIGFPE) && !set.contains(libc::SIGUSR2));
    let line = std::ffi::CString::new(format!("SigIgn:.{:016x}", set.0)).unwrap();
    exec_grep(&mut ex, &line);
    panic!("exec failed");
}

fn exec_from_a_thread() {
    let mut ex = executor();
    spawn(&mut ex, 1);
    ex.yield_turn();
    ex.schedule();
    mask(&mut ex, libc::SIG_SETMASK, blocked());
    // The new program has the process's id and one thread.
    exec_grep(&mut ex, c"SigBlk:.0000000000000e00");
    panic!("exec failed");
}

fn failed_exec() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    mask(&mut ex, libc::SIG_BLOCK, blocked());
    let before = kernel_mask();
    let outcome = ex.call_exec(libc::SYS_execve, [c"/none".as_ptr() as u64, 0, 0, 0, 0, 0]);
    assert_eq!(value(outcome), -2);
    assert_eq!(kernel_mask(), before);
    mask(&mut ex, libc::SIG_UNBLOCK, SigSet::ALL);
    raise(libc::SIGUSR1);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
}

fn signal_before_exec() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    raise(libc::SIGUSR1);
    assert!(matches!(
        exec_grep(&mut ex, c"no such line"),
        Outcome::Restart
    ));
    ex.restart_syscall();
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
    assert_eq!(ex.gs.regs.gpr[7], libc::SIGUSR1 as u64);
}

/// The child's part of a vfork, played on a stack of its own.
fn vfork(ex: &mut Executor, child: extern "C" fn(*mut libc::c_void) -> i32) {
    let mut stack = vec![0u8; 256 << 10];
    let top = (stack.as_mut_ptr() as u64 + stack.len() as u64) & !15;
    let regs = ex.gs.regs;
    let borrowed = ex.before_vfork();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs `child` on its own stack while we wait.
    let pid = unsafe { libc::clone(child, top as *mut _, flags, std::ptr::from_mut(ex).cast()) };
    assert!(pid > 0);
    ex.after_vfork_parent(borrowed);
    ex.gs.regs = regs;
    let mut status = 0;
    // SAFETY: waits for our child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0);
}

extern "C" fn child(ex: *mut libc::c_void) -> i32 {
    // SAFETY: the parent waits until we are gone.
    let ex = unsafe { &mut *ex.cast::<Executor>() };
    ex.after_vfork_child();
    // SAFETY: asks for an id.
    let pid = unsafe { libc::syscall(libc::SYS_getpid) } as i32;
    let ok = ex.tid() == pid && !ex.multi_threaded();
    handle(ex, libc::SIGUSR2, 0);
    mask(ex, libc::SIG_BLOCK, SigSet::only(libc::SIGHUP));
    let kill = [pid as u64, libc::SIGUSR2 as u64, 0, 0, 0, 0];
    value(sys_send_signal(ex, libc::SYS_kill, kill));
    ex.schedule();
    let delivered = ex.gs.regs.rip == HANDLER;
    // One more, taken and never delivered.
    handle(ex, libc::SIGURG, 0);
    value(sys_send_signal(
        ex,
        libc::SYS_kill,
        [pid as u64, libc::SIGURG as u64, 0, 0, 0, 0],
    ));
    // SAFETY: ends the child.
    unsafe { libc::syscall(libc::SYS_exit_group, i32::from(!(ok && delivered))) };
    1
}

fn vfork_child_leaves_no_trace() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    let before = kernel_mask();
    vfork(&mut ex, child);
    assert!(!ex.signals.has_handler(libc::SIGUSR2));
    ex.schedule();
    assert_eq!((ex.gs.regs.rip, kernel_mask()), (RIP, before));
    raise(libc::SIGUSR1);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
}

fn vfork_with_threads() {
    let mut ex = executor();
    let main = ex.tid();
    let other = spawn(&mut ex, 1);
    vfork(&mut ex, child);
    assert!(ex.multi_threaded());
    ex.schedule();
    assert_eq!(ex.tid(), main);
    ex.yield_turn();
    ex.schedule();
    assert_eq!(ex.tid(), other);
    assert_eq!(ex.call_on_proxy(libc::SYS_gettid, [0; 6]) as i32, other);
}
