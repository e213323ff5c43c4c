//! Calls that wait while others run, and how the executor hears of their end.

use std::time::{Duration, Instant};

use clew_engine::context::RAX;
use clew_engine::kernel::Outcome;

use crate::Case;
use crate::guest::*;

pub fn cases() -> Vec<Case> {
    crate::passes![
        call_waits_while_others_run,
        idle_until_a_call_ends,
        end_of_a_call_kicks,
        finish_runs_in_turn
    ]
}

fn park_in_sleep(ex: &mut clew_engine::executor::Executor, ms: u64) {
    // The proxy reads it later: no two calls may share one.
    let at = MEMORY + 0x2000 + ms * 16;
    clew_engine::guest::access::write(at, &[0, ms * 1_000_000]).unwrap();
    let outcome = ex.call_blocking(libc::SYS_nanosleep, [at, 0, 0, 0, 0, 0]);
    assert!(matches!(outcome, Outcome::Parked));
}

fn call_waits_while_others_run() {
    let mut ex = executor();
    spawn(&mut ex, 1);
    let [read, write] = pipe();
    assert!(matches!(
        ex.call_blocking(libc::SYS_read, [read as u64, MEMORY, 5, 0, 0, 0]),
        Outcome::Parked
    ));
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, RIP + 1);
    assert_eq!(
        // SAFETY: writes to our pipe.
        unsafe { libc::write(write, c"hello".as_ptr().cast(), 5) },
        5
    );
    let start = Instant::now();
    while ex.gs.regs.rip != RIP {
        assert!(start.elapsed() < Duration::from_secs(2));
        ex.schedule();
    }
    assert_eq!(ex.gs.regs.gpr[RAX], 5);
    assert_eq!(
        clew_engine::guest::access::read::<[u8; 5]>(MEMORY),
        Ok(*b"hello")
    );
}

fn idle_until_a_call_ends() {
    let mut ex = executor();
    spawn(&mut ex, 1);
    park_in_sleep(&mut ex, 30);
    ex.schedule();
    park_in_sleep(&mut ex, 300);
    let start = Instant::now();
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, RIP);
    park_in_sleep(&mut ex, 900);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, RIP + 1);
    assert!(
        start.elapsed() >= Duration::from_millis(200)
            && start.elapsed() < Duration::from_millis(800)
    );
}

/// Guest code that runs on must be cut short when somebody's call has ended.
fn end_of_a_call_kicks() {
    let mut ex = executor();
    spawn(&mut ex, 1);
    park_in_sleep(&mut ex, 20);
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, RIP + 1);
    let start = Instant::now();
    let ticks = &raw const ex.gs.ticks_left;
    // SAFETY: a handler on this kernel thread changes it.
    while unsafe { ticks.read_volatile() } > 1 {
        assert!(start.elapsed() < Duration::from_secs(2), "no kick");
    }
    ex.gs.ticks_left = 0;
    ex.budget_spent();
    ex.schedule();
    assert_eq!(ex.gs.regs.rip, RIP);
}

fn finish_runs_in_turn() {
    let mut ex = executor();
    spawn(&mut ex, 1);
    let finish = Box::new(|ex: &mut clew_engine::executor::Executor, value: i64| {
        value + i64::from(ex.tid())
    });
    let outcome = ex.call_blocking_then(libc::SYS_getpid, [0; 6], Some(finish));
    assert!(matches!(outcome, Outcome::Parked));
    while ex.gs.regs.gpr[RAX] == 0 || ex.gs.regs.rip != RIP {
        ex.yield_turn();
        ex.schedule();
    }
    assert_eq!(ex.gs.regs.gpr[RAX] as i32, 2 * ex.tid());
}
