//! Futexes between guest threads.

use std::time::{Duration, Instant};

use clew_engine::context::RAX;
use clew_engine::executor::Executor;
use clew_engine::guest::access;
use clew_engine::guest::futex::calls::sys_futex;
use clew_engine::host::sigset::SigSet;
use clew_engine::kernel::Outcome;

use crate::Case;
use crate::guest::*;

pub fn cases() -> Vec<Case> {
    crate::passes![
        wait_and_wake,
        timeout,
        interrupted_wait,
        pi_handover,
        robust_owner_dies,
        join
    ]
}

const WORD: u64 = MEMORY + 0x800;
const PRIVATE: i32 = libc::FUTEX_PRIVATE_FLAG;

fn futex(ex: &mut Executor, op: i32, value: u32, timeout: u64) -> Outcome {
    at_syscall(ex, libc::SYS_futex);
    sys_futex(
        ex,
        [
            WORD,
            (op | PRIVATE) as u64,
            u64::from(value),
            timeout,
            0,
            u64::from(u32::MAX),
        ],
    )
}

fn two() -> (Executor, i32) {
    let mut ex = executor();
    let tid = spawn(&mut ex, 1);
    (ex, tid)
}

fn wait_and_wake() {
    let (mut ex, tid) = two();
    assert_eq!(value(futex(&mut ex, libc::FUTEX_WAIT, 5, 0)), -11);
    assert!(matches!(
        futex(&mut ex, libc::FUTEX_WAIT, 0, 0),
        Outcome::Parked
    ));
    ex.schedule();
    assert_eq!(ex.tid(), tid);
    assert_eq!(value(futex(&mut ex, libc::FUTEX_WAKE, 1, 0)), 1);
    assert_eq!(value(futex(&mut ex, libc::FUTEX_WAKE, 1, 0)), 0);
    ex.yield_turn();
    ex.schedule();
    assert_eq!((ex.gs.regs.rip, ex.gs.regs.gpr[RAX]), (RIP, 0));
}

fn timeout() {
    let (mut ex, _) = two();
    access::write(MEMORY, &[0u64, 20_000_000]).unwrap();
    assert!(matches!(
        futex(&mut ex, libc::FUTEX_WAIT, 0, MEMORY),
        Outcome::Parked
    ));
    ex.schedule();
    access::write(MEMORY, &[5u64, 0]).unwrap();
    let start = Instant::now();
    ex.gs.regs.gpr[RAX] = 202;
    assert!(matches!(
        futex(&mut ex, libc::FUTEX_WAIT, 0, MEMORY),
        Outcome::Parked
    ));
    ex.schedule();
    assert_eq!(ex.gs.regs.gpr[RAX] as i64, -110);
    assert_eq!(
        value(futex(&mut ex, libc::FUTEX_WAKE, 9, 0)),
        1,
        "the other still waits"
    );
    let elapsed = start.elapsed();
    assert!(elapsed > Duration::from_millis(10) && elapsed < Duration::from_secs(2));
}

fn interrupted_wait() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGUSR1, libc::SA_RESTART);
    // Only the main thread will have it.
    mask(&mut ex, libc::SIG_BLOCK, SigSet::only(libc::SIGUSR1));
    let tid = spawn(&mut ex, 1);
    mask(&mut ex, libc::SIG_UNBLOCK, SigSet::ALL);
    assert!(matches!(
        futex(&mut ex, libc::FUTEX_WAIT, 0, 0),
        Outcome::Parked
    ));
    ex.schedule();
    assert_eq!(ex.tid(), tid);
    raise(libc::SIGUSR1);
    let start = Instant::now();
    while ex.gs.regs.rip != HANDLER {
        assert!(start.elapsed() < Duration::from_secs(2));
        ex.yield_turn();
        ex.schedule();
    }
    assert_eq!((frame(&ex).0, frame(&ex).1), (RIP - 2, libc::SYS_futex));
    assert_eq!(
        value(futex(&mut ex, libc::FUTEX_WAKE, 9, 0)),
        0,
        "nobody waits any more"
    );
}

fn pi_handover() {
    let (mut ex, tid) = two();
    let main = ex.tid() as u32;
    assert_eq!(value(futex(&mut ex, libc::FUTEX_LOCK_PI, 0, 0)), 0);
    assert_eq!(access::read::<u32>(WORD), Ok(main));
    assert_eq!(value(futex(&mut ex, libc::FUTEX_LOCK_PI, 0, 0)), -35);
    ex.yield_turn();
    ex.schedule();
    assert_eq!(value(futex(&mut ex, libc::FUTEX_TRYLOCK_PI, 0, 0)), -11);
    assert!(matches!(
        futex(&mut ex, libc::FUTEX_LOCK_PI, 0, 0),
        Outcome::Parked
    ));
    assert_eq!(access::read::<u32>(WORD), Ok(main | 0x8000_0000));
    ex.schedule();
    assert_eq!(value(futex(&mut ex, libc::FUTEX_UNLOCK_PI, 0, 0)), 0);
    assert_eq!(access::read::<u32>(WORD), Ok(tid as u32 | 0x8000_0000));
    ex.yield_turn();
    ex.schedule();
    assert_eq!((ex.tid(), ex.gs.regs.gpr[RAX]), (tid, 0));
    assert_eq!(value(futex(&mut ex, libc::FUTEX_UNLOCK_PI, 0, 0)), 0);
    assert_eq!(access::read::<u32>(WORD), Ok(0));
}

fn robust_owner_dies() {
    let (mut ex, tid) = two();
    ex.yield_turn();
    ex.schedule();
    // head: first link, offset of words from links, no pending operation; one entry.
    let (head, node) = (MEMORY + 0x900, WORD - 16);
    access::write(head, &[node, 16, 0]).unwrap();
    access::write(node, &head).unwrap();
    access::write(WORD, &(tid as u32 | 0x8000_0000)).unwrap();
    ex.current().robust_list = head;
    ex.yield_turn();
    ex.schedule();
    assert!(matches!(
        futex(&mut ex, libc::FUTEX_WAIT, tid as u32 | 0x8000_0000, 0),
        Outcome::Parked
    ));
    ex.schedule();
    assert_eq!(ex.tid(), tid);
    ex.exit_thread(0);
    assert_eq!(access::read::<u32>(WORD), Ok(0xc000_0000));
    ex.schedule();
    assert_eq!((ex.gs.regs.rip, ex.gs.regs.gpr[RAX]), (RIP, 0));
}

/// pthread_join: waits for the word that the end of a thread clears.
fn join() {
    let (mut ex, tid) = two();
    let word = MEMORY + 0x1000 + 8;
    let wait = [word, libc::FUTEX_WAIT as u64, tid as u64, 0, 0, 0];
    assert!(matches!(sys_futex(&mut ex, wait), Outcome::Parked));
    ex.schedule();
    ex.exit_thread(0);
    ex.schedule();
    assert_eq!((ex.gs.regs.rip, ex.gs.regs.gpr[RAX]), (RIP, 0));
}
