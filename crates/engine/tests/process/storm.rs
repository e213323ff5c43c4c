//! Everything at once: threads that wait in futexes and in the kernel, yield, block and unblock,
//! send each other signals, while a timer fires. No signal may get lost or come twice, and no
//! thread may be left behind.

use std::time::{Duration, Instant};

use clew_engine::context::{RAX, RSP};
use clew_engine::executor::Executor;
use clew_engine::guest::access;
use clew_engine::guest::futex::calls::sys_futex;
use clew_engine::guest::signals::calls::*;
use clew_engine::guest::signals::waiting::sys_ppoll;
use clew_engine::host::sigset::SigSet;

use crate::Case;
use crate::guest::*;

pub fn cases() -> Vec<Case> {
    crate::passes![storm, queued_signals_all_arrive]
}

const THREADS: u64 = 6;

struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn tick_every_ms() {
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 1000,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: starts a timer.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

fn storm() {
    let mut ex = executor();
    handle(&mut ex, libc::SIGALRM, libc::SA_RESTART);
    handle(&mut ex, libc::SIGUSR1, 0);
    let mut tids = vec![ex.tid()];
    for number in 1..THREADS {
        tids.push(spawn(&mut ex, number));
    }
    tick_every_ms();
    let mut random = Random(88_172_645_463_325_252);
    let (mut handled, mut turns) = (vec![0; THREADS as usize], vec![0; THREADS as usize]);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        ex.schedule();
        let me = tids
            .iter()
            .position(|&tid| tid == ex.tid())
            .expect("a thread of ours");
        turns[me] += 1;
        if ex.gs.regs.rip == HANDLER {
            handled[me] += 1;
            ex.gs.regs.gpr[RSP] += 8;
            let outcome = sys_rt_sigreturn(&mut ex, [0; 6]);
            settle(&mut ex, outcome);
            continue;
        }
        ex.gs.regs.gpr[RSP] = MEMORY + 0x8_0000 + me as u64 * 0x1_0000;
        act(&mut ex, &mut random, &tids, me as u64);
    }
    assert!(
        turns.iter().all(|&n| n > 50),
        "turns: {turns:?}, handled: {handled:?}"
    );
    assert!(
        handled.iter().all(|&n| n > 10),
        "turns: {turns:?}, handled: {handled:?}"
    );
    ex.exit_group(0);
}

/// One system call of a thread, as its registers say.
fn act(ex: &mut Executor, random: &mut Random, tids: &[i32], me: u64) {
    let own = MEMORY + 0x3000 + me * 0x100;
    let nr = match random.below(7) {
        0 | 1 => libc::SYS_futex,
        2 => libc::SYS_nanosleep,
        3 => libc::SYS_rt_sigprocmask,
        4 => libc::SYS_tgkill,
        5 => libc::SYS_ppoll,
        _ => libc::SYS_sched_yield,
    };
    // The instruction is the thread's own, so that restarts can be told from new calls.
    ex.gs.regs.rip = RIP + me;
    ex.gs.regs.gpr[RAX] = nr as u64;
    access::write(own, &[0u64, 500_000]).unwrap();
    access::write(own + 64, &SigSet::NONE).unwrap();
    let outcome = match nr {
        libc::SYS_futex if random.below(2) == 0 => {
            sys_futex(ex, [MEMORY + 0x800, libc::FUTEX_WAKE as u64, 2, 0, 0, 0])
        }
        libc::SYS_futex => sys_futex(ex, [MEMORY + 0x800, libc::FUTEX_WAIT as u64, 0, own, 0, 0]),
        libc::SYS_nanosleep => ex.call_blocking(nr, [own, 0, 0, 0, 0, 0]),
        libc::SYS_rt_sigprocmask => {
            access::write(own + 128, &SigSet(random.below(2) * 0x2200)).unwrap();
            sys_rt_sigprocmask(ex, [libc::SIG_SETMASK as u64, own + 128, 0, 8, 0, 0])
        }
        libc::SYS_ppoll => sys_ppoll(ex, [0, 0, own, own + 64, 8, 0]),
        libc::SYS_tgkill => {
            // SAFETY: asks for an id.
            let pid = unsafe { libc::getpid() } as u64;
            let to = tids[random.below(tids.len() as u64) as usize] as u64;
            sys_send_signal(ex, nr, [pid, to, libc::SIGUSR1 as u64, 0, 0, 0])
        }
        _ => {
            ex.yield_turn();
            clew_engine::kernel::Outcome::Return(0)
        }
    };
    settle(ex, outcome);
}

/// Real-time signals queue: each one sent is handled once.
fn queued_signals_all_arrive() {
    const COUNT: u64 = 2000;
    let mut ex = executor();
    handle(&mut ex, 40, 0);
    let tid = spawn(&mut ex, 1);
    // SAFETY: asks for an id.
    let pid = unsafe { libc::getpid() } as u64;
    let (mut sent, mut got) = (0, 0);
    let start = Instant::now();
    while got < COUNT {
        assert!(start.elapsed() < Duration::from_secs(15), "{got} of {sent}");
        ex.yield_turn();
        ex.schedule();
        if ex.gs.regs.rip == HANDLER {
            got += 1;
            ex.gs.regs.gpr[RSP] += 8;
            sys_rt_sigreturn(&mut ex, [0; 6]);
        } else if sent < COUNT {
            // To the thread and to the process in turn, with the mask changing lazily.
            let to = if sent % 2 == 0 { tid as u64 } else { pid };
            mask(
                &mut ex,
                libc::SIG_SETMASK,
                SigSet(if sent % 3 == 0 { 1 << 39 } else { 0 }),
            );
            value(sys_send_signal(
                &mut ex,
                libc::SYS_tgkill,
                [pid, to, 40, 0, 0, 0],
            ));
            sent += 1;
        } else {
            mask(&mut ex, libc::SIG_SETMASK, SigSet::NONE);
        }
    }
    for _ in 0..20 {
        ex.yield_turn();
        ex.schedule();
        assert_ne!(ex.gs.regs.rip, HANDLER, "one too many");
    }
    assert_eq!(sent, COUNT);
    ex.exit_group(0);
}
