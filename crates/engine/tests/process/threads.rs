//! Guest threads: birth, turns, signals to one of them, death.

use std::time::{Duration, Instant};

use clew_engine::context::{RAX, RDI};
use clew_engine::executor::Executor;
use clew_engine::guest::access;
use clew_engine::guest::signals::calls::*;
use clew_engine::host::sigset::SigSet;
use clew_engine::kernel::Outcome;

use crate::guest::*;
use crate::{Case, End};

pub fn cases() -> Vec<Case> {
    let mut cases = crate::passes![
        swap_keeps_identity,
        turns_go_round,
        five_hundred,
        churn,
        signal_to_one_thread,
        signal_ends_a_proxys_call,
        lazily_blocked_signal_goes_elsewhere,
        raise_in_a_thread_is_immediate,
        sent_fault_signal_in_threads,
        fork_leaves_one,
        exit_of_main_first,
        ticks_are_counted,
    ];
    cases.push(Case {
        name: "sent_fault_signal_kills_threads",
        run: sent_fault_signal_kills,
        end: End::Signal(libc::SIGBUS),
    });
    cases.push(Case {
        name: "last_thread_ends_the_process",
        run: last_thread,
        end: End::Exit(7),
    });
    cases
}

fn gettid(ex: &mut Executor) -> i32 {
    ex.call_on_proxy(libc::SYS_gettid, [0; 6]) as i32
}

fn swap_keeps_identity() {
    let mut ex = executor();
    let main = ex.tid();
    let heap: Vec<i32> = (1..4).collect();
    let tid = spawn(&mut ex, 1);
    assert!(ex.multi_threaded());
    assert_eq!((gettid(&mut ex), ex.tid()), (main, main));
    // SAFETY: asks for ids.
    let (pid, executor) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid) as i32) };
    assert_eq!(pid, main);
    assert!(executor != main && executor != tid);
    // The Rust world is whole: allocation, thread-local storage, locks.
    assert_eq!(heap.iter().map(|x| x + 1).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(std::thread::current().name().is_some());
    ex.yield_turn();
    ex.schedule();
    assert_eq!((ex.tid(), gettid(&mut ex)), (tid, tid));
    assert_eq!(
        (ex.gs.regs.rip, ex.gs.regs.gpr[RAX], ex.gs.regs.fs_base),
        (RIP + 1, 0, 0x7001)
    );
}

fn turns_go_round() {
    let mut ex = executor();
    for number in 1..4 {
        ex.gs.ymm[0] = [number as u8; 32];
        spawn(&mut ex, number);
    }
    ex.gs.ymm[0] = [0; 32];
    for turn in 1..13 {
        ex.yield_turn();
        ex.schedule();
        assert_eq!(ex.gs.regs.rip, RIP + turn % 4);
        assert_eq!(ex.gs.ymm[0], [(turn % 4) as u8; 32]);
        // The first part of a turn, after which it is looked at.
        assert!((700..1400).contains(&ex.gs.ticks_left));
    }
}

fn five_hundred() {
    let mut ex = executor();
    for number in 1..=500 {
        spawn(&mut ex, number);
    }
    for _ in 0..500 {
        ex.yield_turn();
        ex.schedule();
        let tid = ex.tid();
        assert_eq!(gettid(&mut ex), tid);
    }
    assert_eq!(ex.threads.count(), 501);
}

fn churn() {
    let mut ex = executor();
    for number in 1..3000 {
        let tid = spawn(&mut ex, number);
        ex.yield_turn();
        ex.schedule();
        assert_eq!(ex.tid(), tid);
        assert!(matches!(ex.exit_thread(0), Outcome::Parked));
        let word = MEMORY + 0x1000 + number % 512 * 8;
        assert_eq!(access::read::<i32>(word), Ok(0), "CLEARTID");
        ex.schedule();
        assert_eq!(ex.gs.regs.rip, RIP);
    }
}

fn tgkill(ex: &mut Executor, tid: i32, sig: i32) {
    // SAFETY: asks for an id.
    let pid = unsafe { libc::getpid() } as u64;
    assert_eq!(
        value(sys_send_signal(
            ex,
            libc::SYS_tgkill,
            [pid, tid as u64, sig as u64, 0, 0, 0]
        )),
        0
    );
}

/// Nothing takes so long, however busy the machine is.
const LONG: Duration = Duration::from_secs(60);

/// Runs turns until `done`, which others may have to do their part for.
fn until(ex: &mut Executor, done: impl Fn(&mut Executor) -> bool) {
    let started = Instant::now();
    while started.elapsed() < LONG {
        ex.yield_turn();
        ex.schedule();
        if done(ex) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("it never happened");
}

/// Waits until a proxy is in a call of its own: a signal before it would be another case.
fn until_in_call(tid: i32, number: i64) {
    let path = format!("/proc/self/task/{tid}/syscall");
    let prefix = format!("{number} ");
    let started = Instant::now();
    while !std::fs::read_to_string(&path).is_ok_and(|text| text.starts_with(&prefix)) {
        assert!(
            started.elapsed() < LONG,
            "{tid} never waits in call {number}"
        );
        std::thread::yield_now();
    }
}

fn signal_to_one_thread() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    let tids = [1, 2, 3].map(|number| spawn(&mut ex, number));
    tgkill(&mut ex, tids[1], libc::SIGUSR1);
    until(&mut ex, |ex| ex.gs.regs.rip == HANDLER);
    assert_eq!(ex.tid(), tids[1]);
    assert_eq!(frame(&ex).0, RIP + 2);
    // Its mask is in the kernel now, on its own proxy.
    let set = MEMORY + 128;
    assert_eq!(
        ex.call_on_proxy(libc::SYS_rt_sigprocmask, [0, 0, set, 8, 0, 0]),
        0
    );
    assert_eq!(access::read::<SigSet>(set), Ok(SigSet::only(libc::SIGUSR1)));
}

fn signal_ends_a_proxys_call() {
    for flags in [0, libc::SA_RESTART] {
        // SAFETY: a process with one thread.
        if unsafe { libc::fork() } != 0 {
            let mut status = 0;
            // SAFETY: waits for our child.
            unsafe { libc::wait(&raw mut status) };
            assert_eq!(status, 0);
            continue;
        }
        let mut ex = executor();
        handle(&mut ex, libc::SIGUSR1, flags);
        let [read, _write] = pipe();
        let reader = spawn(&mut ex, 1);
        ex.yield_turn();
        ex.schedule();
        assert_eq!(ex.tid(), reader);
        at_syscall(&mut ex, libc::SYS_read);
        assert!(matches!(
            ex.call_blocking(libc::SYS_read, [read as u64, MEMORY, 1, 0, 0, 0]),
            Outcome::Parked
        ));
        ex.schedule();
        assert_ne!(ex.tid(), reader);
        until_in_call(reader, libc::SYS_read);
        tgkill(&mut ex, reader, libc::SIGUSR1);
        until(&mut ex, |ex| ex.gs.regs.rip == HANDLER);
        assert_eq!(ex.tid(), reader);
        let expected = if flags == 0 {
            (RIP, -4)
        } else {
            (RIP - 2, libc::SYS_read)
        };
        assert_eq!((frame(&ex).0, frame(&ex).1), expected);
        return;
    }
}

/// A signal for the process whose first choice has blocked it only in the guest's mind.
fn lazily_blocked_signal_goes_elsewhere() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    let other = spawn(&mut ex, 1);
    mask(&mut ex, libc::SIG_BLOCK, SigSet::ALL);
    raise(libc::SIGUSR1);
    until(&mut ex, |ex| ex.gs.regs.rip == HANDLER);
    assert_eq!(ex.tid(), other);
}

fn raise_in_a_thread_is_immediate() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, libc::SA_NODEFER);
    let tid = spawn(&mut ex, 1);
    ex.yield_turn();
    ex.schedule();
    for _ in 0..1000 {
        ex.gs.regs.rip = RIP;
        ex.gs.regs.gpr[4] = STACK;
        tgkill(&mut ex, tid, libc::SIGUSR1);
        ex.schedule();
        // Its turn may have ended; the signal is there when it has the next.
        while ex.tid() != tid {
            ex.yield_turn();
            ex.schedule();
        }
        assert_eq!(
            (ex.gs.regs.rip, ex.gs.regs.gpr[RDI]),
            (HANDLER, libc::SIGUSR1 as u64)
        );
    }
}

fn fork_leaves_one() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, 0);
    for number in 1..4 {
        spawn(&mut ex, number);
    }
    ex.yield_turn();
    ex.schedule();
    ex.before_fork();
    // SAFETY: the child goes on with this kernel thread alone.
    let pid = unsafe { libc::syscall(libc::SYS_fork) };
    if pid != 0 {
        ex.after_fork_parent();
        let mut status = 0;
        // SAFETY: waits for our child.
        unsafe { libc::wait(&raw mut status) };
        assert_eq!(status, 0);
        ex.exit_group(0);
    }
    ex.after_fork_child();
    assert!(!ex.multi_threaded());
    assert_eq!((ex.threads.count(), ex.gs.regs.rip), (1, RIP + 1));
    // SAFETY: asks for an id.
    assert_eq!(ex.tid(), unsafe { libc::getpid() });
    raise(libc::SIGUSR1);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, HANDLER);
    // And it can have threads again.
    let tid = spawn(&mut ex, 9);
    ex.yield_turn();
    ex.schedule();
    assert_eq!((ex.tid(), gettid(&mut ex)), (tid, tid));
    ex.exit_group(0);
}

fn exit_of_main_first() {
    let mut ex = executor();
    let tid = spawn(&mut ex, 1);
    ex.exit_thread(3);
    ex.schedule();
    assert_eq!(ex.tid(), tid);
    assert_eq!(ex.threads.count(), 1);
    // SAFETY: the process still answers to its id.
    assert_eq!(unsafe { libc::kill(libc::getpid(), 0) }, 0);
    ex.exit_thread(0);
}

fn last_thread() {
    let mut ex = executor();
    spawn(&mut ex, 1);
    ex.exit_thread(3);
    ex.schedule();
    ex.exit_thread(7);
}

fn ticks_are_counted() {
    let mut ex = executor();
    ex.schedule();
    assert_eq!(ex.gs.ticks_left, 2_000_000);
    ex.gs.ticks_left -= 1234;
    handle(&mut ex, libc::SIGUSR1, 0);
    raise(libc::SIGUSR1);
    assert_eq!(ex.gs.ticks_left, 1, "kicked");
    ex.schedule();
    assert_eq!((ex.gs.ticks_left, ex.gs.kicked), (2_000_000 - 1234, 0));
    ex.gs.ticks_left = 0;
    ex.budget_spent();
    ex.schedule();
    ex.gs.ticks_left -= 5;
    ex.count_ticks();
    assert_eq!(ex.stats.ticks, 2_000_005);
}

/// SIGSEGV sent to the process, blocked in every thread, then unblocked in one.
fn sent_fault_signal_in_threads() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGSEGV, 0);
    mask(&mut ex, libc::SIG_BLOCK, SigSet::only(libc::SIGSEGV));
    spawn(&mut ex, 1);
    raise(libc::SIGSEGV);
    for _ in 0..1000 {
        ex.yield_turn();
        ex.schedule();
        assert_ne!(ex.gs.regs.rip, HANDLER);
    }
    for _ in 0..2 {
        mask(&mut ex, libc::SIG_UNBLOCK, SigSet::ALL);
        ex.yield_turn();
        ex.schedule();
    }
    until(&mut ex, |ex| ex.gs.regs.rip == HANDLER);
}

fn sent_fault_signal_kills() {
    let mut ex = executor();
    let tid = spawn(&mut ex, 1);
    tgkill(&mut ex, tid, libc::SIGBUS);
    until(&mut ex, |_| false);
}
