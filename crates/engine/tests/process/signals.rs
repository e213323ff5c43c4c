//! One guest thread: taking, delivering, returning, waiting.

use clew_engine::context::{RAX, RDI, RSP};
use clew_engine::guest::access;
use clew_engine::guest::signals::calls::*;
use clew_engine::guest::signals::waiting::*;
use clew_engine::host::sigset::{SigSet, kernel_mask};
use clew_engine::kernel::Outcome;

use crate::guest::*;
use crate::{Case, End};

const EINTR: i64 = -4;

pub fn cases() -> Vec<Case> {
    let mut cases = crate::passes![
        copy_survives_faults,
        read_is_interrupted,
        read_is_restarted,
        signal_before_the_call,
        frame_and_return,
        blocked_signal_waits_in_the_kernel,
        signal_taken_before_blocking_comes_first,
        suspend,
        timed_wait,
        order_and_nesting,
        reset_handler,
        sent_fault_signal_respects_the_mask,
        fault_with_handler,
    ];
    cases.push(Case {
        name: "fault_without_handler_kills",
        run: fault_without_handler,
        end: End::Signal(11),
    });
    cases.push(Case {
        name: "blocked_fault_kills",
        run: blocked_fault,
        end: End::Signal(8),
    });
    cases.push(Case {
        name: "default_kills",
        run: default_kills,
        end: End::Signal(15),
    });
    cases
}

fn copy_survives_faults() {
    let _ex = executor();
    assert!(access::read::<u64>(MEMORY - 4096).is_err());
    assert!(access::write(MEMORY - 4096, &1u32).is_err());
    assert!(access::read_bytes(MEMORY - 5, &mut [0; 100]).is_err());
    assert!(access::read::<u64>(MEMORY).is_ok());
}

fn interrupted_read(flags: i32) -> (clew_engine::executor::Executor, Outcome) {
    let mut ex = executor();
    handle(&mut ex, libc::SIGALRM, flags);
    let [read, _write] = pipe();
    in_ms(20);
    at_syscall(&mut ex, libc::SYS_read);
    let outcome = ex.call_blocking(libc::SYS_read, [read as u64, MEMORY, 1, 0, 0, 0]);
    (ex, outcome)
}

fn read_is_interrupted() {
    let (mut ex, outcome) = interrupted_read(0);
    settle(&mut ex, outcome);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
    assert_eq!((frame(&ex).0, frame(&ex).1), (RIP, EINTR));
}

fn read_is_restarted() {
    let (mut ex, outcome) = interrupted_read(libc::SA_RESTART);
    assert!(matches!(outcome, Outcome::Restart));
    settle(&mut ex, outcome);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
    assert_eq!((frame(&ex).0, frame(&ex).1), (RIP - 2, libc::SYS_read));
}

fn signal_before_the_call() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    let [read, _write] = pipe();
    raise(libc::SIGUSR1);
    let outcome = ex.call_blocking(libc::SYS_read, [read as u64, MEMORY, 1, 0, 0, 0]);
    assert!(
        matches!(outcome, Outcome::Restart),
        "the call must not be made"
    );
}

fn frame_and_return() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    ex.gs.regs.gpr[3] = 77;
    ex.gs.mxcsr = 0x1f80;
    ex.gs.ymm[3] = [5; 32];
    let before = ex.gs.regs;
    raise(libc::SIGUSR1);
    ex.schedule();
    assert_eq!(ex.gs.regs.gpr[RDI], libc::SIGUSR1 as u64);
    assert_eq!(ex.gs.ymm[3], [0; 32], "a handler starts with a clean state");
    assert!(kernel_mask().contains(libc::SIGUSR1));
    assert!(!kernel_mask().contains(libc::SIGUSR2));
    // The handler changes registers and returns through the restorer.
    ex.gs.regs.gpr[3] = 1;
    ex.gs.regs.gpr[RSP] += 8;
    settle_replaced(sys_rt_sigreturn(&mut ex, [0; 6]));
    ex.schedule();
    assert_eq!(ex.gs.regs, before);
    assert_eq!(ex.gs.ymm[3], [5; 32]);
    assert!(!kernel_mask().contains(libc::SIGUSR1));
}

fn settle_replaced(outcome: Outcome) {
    assert!(matches!(outcome, Outcome::Replaced));
}

fn blocked_signal_waits_in_the_kernel() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    mask(&mut ex, libc::SIG_BLOCK, SigSet::only(libc::SIGUSR1));
    raise(libc::SIGUSR1);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, RIP);
    assert_eq!(
        value(sys_rt_sigpending(&mut ex, [MEMORY, 8, 0, 0, 0, 0])),
        0
    );
    assert_eq!(
        access::read::<SigSet>(MEMORY),
        Ok(SigSet::only(libc::SIGUSR1))
    );
    mask(&mut ex, libc::SIG_UNBLOCK, SigSet::only(libc::SIGUSR1));
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
    assert_eq!(frame(&ex).2, SigSet::NONE);
}

fn signal_taken_before_blocking_comes_first() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    raise(libc::SIGUSR1);
    access::write(MEMORY, &SigSet::ALL).unwrap();
    at_syscall(&mut ex, libc::SYS_rt_sigprocmask);
    let outcome = sys_rt_sigprocmask(&mut ex, [libc::SIG_BLOCK as u64, MEMORY, 0, 8, 0, 0]);
    assert!(matches!(outcome, Outcome::Restart));
    settle(&mut ex, outcome);
    ex.schedule();
    assert_eq!((frame(&ex).0, frame(&ex).2), (RIP - 2, SigSet::NONE));
}

fn suspend() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, libc::SA_RESTART);
    let own = SigSet::only(libc::SIGUSR1).union(SigSet::only(libc::SIGHUP));
    mask(&mut ex, libc::SIG_BLOCK, own);
    raise(libc::SIGUSR1);
    ex.schedule();
    let during = SigSet::only(libc::SIGUSR2);
    access::write(MEMORY, &during).unwrap();
    at_syscall(&mut ex, libc::SYS_rt_sigsuspend);
    let outcome = sys_rt_sigsuspend(&mut ex, [MEMORY, 8, 0, 0, 0, 0]);
    settle(&mut ex, outcome);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
    assert_eq!(frame(&ex), (RIP, EINTR, own));
    assert_eq!(kernel_mask(), during.union(SigSet::only(libc::SIGUSR1)));
    // A call that ends by itself leaves the mask as it was.
    access::write(MEMORY, &during).unwrap();
    access::write(MEMORY + 64, &[0u64; 2]).unwrap();
    let now = kernel_mask();
    assert_eq!(
        value(sys_ppoll(&mut ex, [0, 0, MEMORY + 64, MEMORY, 8, 0])),
        0
    );
    ex.schedule();
    assert_eq!(kernel_mask(), now);
}

fn timed_wait() {
    let mut ex = executor();
    let set = SigSet::only(libc::SIGUSR1);
    mask(&mut ex, libc::SIG_BLOCK, set);
    raise(libc::SIGUSR1);
    access::write(MEMORY, &set).unwrap();
    let args = [MEMORY, MEMORY + 64, 0, 8, 0, 0];
    assert_eq!(
        value(sys_rt_sigtimedwait(&mut ex, args)),
        i64::from(libc::SIGUSR1)
    );
    assert_eq!(access::read::<i32>(MEMORY + 64), Ok(libc::SIGUSR1));
}

/// Several at once: each finds the frame of the one before, in the kernel's order.
fn order_and_nesting() {
    let mut ex = executor();
    for sig in [libc::SIGUSR1, libc::SIGUSR2, 40] {
        handle(&mut ex, sig, 0);
    }
    let all = [libc::SIGUSR1, libc::SIGUSR2, 40].map(SigSet::only);
    mask(&mut ex, libc::SIG_BLOCK, all[0].union(all[1]).union(all[2]));
    for sig in [40, libc::SIGUSR2, libc::SIGUSR1, 40] {
        raise(sig);
    }
    mask(&mut ex, libc::SIG_UNBLOCK, SigSet::ALL);
    ex.schedule();
    // The last one delivered is on top: the two standard signals by number, then one real-time
    // signal (the second of these is blocked by its handler).
    assert_eq!(ex.gs.regs.gpr[RDI], 40);
    assert_eq!(frame(&ex).2, all[0].union(all[1]));
    ex.gs.regs.gpr[RSP] += 8;
    sys_rt_sigreturn(&mut ex, [0; 6]);
    ex.schedule();
    assert_eq!(ex.gs.regs.gpr[RDI], 40, "queued twice");
}

fn reset_handler() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGURG, libc::SA_RESETHAND | libc::SA_NODEFER);
    raise(libc::SIGURG);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
    assert!(!kernel_mask().contains(libc::SIGURG));
    ex.gs.regs.rip = RIP;
    raise(libc::SIGURG);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, RIP, "ignored by default");
}

/// SIGSEGV sent by somebody can't be blocked on the host: the engine holds it back.
fn sent_fault_signal_respects_the_mask() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGSEGV, 0);
    let set = SigSet::only(libc::SIGSEGV);
    mask(&mut ex, libc::SIG_BLOCK, set);
    raise(libc::SIGSEGV);
    raise(libc::SIGSEGV);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, RIP);
    assert_eq!(
        value(sys_rt_sigpending(&mut ex, [MEMORY, 8, 0, 0, 0, 0])),
        0
    );
    assert_eq!(access::read::<SigSet>(MEMORY), Ok(set));
    mask(&mut ex, libc::SIG_UNBLOCK, set);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
}

fn fault_with_handler() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGSEGV, libc::SA_SIGINFO);
    ex.gs.regs.gpr[RAX] = 3;
    ex.raise_fault(libc::SIGSEGV, 2, 0xdead_0000, 14, 6);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
    let info = ex.gs.regs.gpr[6];
    assert_eq!(
        access::read::<i32>(info + 8),
        Ok(1),
        "SEGV_MAPERR: nothing is mapped there"
    );
    assert_eq!(access::read::<u64>(info + 16), Ok(0xdead_0000));
    assert_eq!(frame(&ex).1, 3);
}

fn fault_without_handler() {
    executor().raise_fault(libc::SIGSEGV, 1, 8, 14, 4);
}

fn blocked_fault() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGFPE, 0);
    mask(&mut ex, libc::SIG_BLOCK, SigSet::ALL);
    ex.raise_fault(libc::SIGFPE, 1, 0, 0, 0);
}

/// The handler is taken away while the signal is already in the engine's hands.
fn default_kills() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGTERM, 0);
    raise(libc::SIGTERM);
    access::write(MEMORY, &[0u64; 4]).unwrap();
    value(sys_rt_sigaction(
        &mut ex,
        [libc::SIGTERM as u64, MEMORY, 0, 8, 0, 0],
    ));
    ex.schedule();
}
