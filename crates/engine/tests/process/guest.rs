//! A guest without code: memory where guests have it, and an executor that has taken over.

use clew_engine::cache::CodeCache;
use clew_engine::cache::atlas::SharedAtlas;
use clew_engine::context::{GsBlock, RAX, RSP};
use clew_engine::executor::Executor;
use clew_engine::guest::access;
use clew_engine::guest::signals::calls::{sys_rt_sigaction, sys_rt_sigprocmask};
use clew_engine::host::handlers::{Action, SA_RESTORER};
use clew_engine::host::sigset::SigSet;
use clew_engine::kernel::Outcome;
use clew_engine::layout;
use clew_engine::program::Options;

pub const MEMORY: u64 = layout::HIGH.start + 0x5000_0000;
pub const STACK: u64 = MEMORY + 0x8_0000;
pub const RIP: u64 = 0x1234_5678;
pub const HANDLER: u64 = 0x1111_0000;

pub fn executor() -> Executor {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let gs = GsBlock::map().expect("one executor in each process");
    // SAFETY: a new anonymous mapping.
    unsafe {
        let memory = libc::mmap(
            MEMORY as *mut _,
            0x10_0000,
            3,
            flags | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        );
        assert_eq!(memory as u64, MEMORY);
    }
    let mut ex = Executor {
        recorder: None,
        lockstep: None,
        gs,
        memory: Default::default(),
        code: CodeCache::new(&Options::default(), None, SharedAtlas::default()).unwrap(),
        threads: Default::default(),
        signals: Default::default(),
        kernel: Default::default(),
        program: Default::default(),
        options: Default::default(),
        stats: Default::default(),
    };
    ex.take_over_process();
    ex.gs.regs.gpr[RSP] = STACK;
    ex.gs.regs.rip = RIP;
    ex.gs.regs.rflags = 0x202;
    ex
}

pub fn value(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Return(value) => value,
        Outcome::Restart => panic!("restarted"),
        Outcome::Parked => panic!("parked"),
        Outcome::Replaced => panic!("replaced"),
    }
}

pub fn handle(ex: &mut Executor, sig: i32, flags: i32) {
    let action = Action {
        handler: HANDLER,
        flags: flags as u64 | SA_RESTORER,
        restorer: 0x99,
        mask: SigSet::NONE,
    };
    access::write(MEMORY, &action).unwrap();
    assert_eq!(
        value(sys_rt_sigaction(ex, [sig as u64, MEMORY, 0, 8, 0, 0])),
        0
    );
}

pub fn mask(ex: &mut Executor, how: i32, set: SigSet) -> i64 {
    access::write(MEMORY, &set).unwrap();
    value(sys_rt_sigprocmask(ex, [how as u64, MEMORY, 0, 8, 0, 0]))
}

/// A system call's number in rax, as at an exit.
pub fn at_syscall(ex: &mut Executor, nr: i64) {
    ex.gs.regs.gpr[RAX] = nr as u64;
    ex.gs.regs.rip = RIP;
}

/// What the executor does with an outcome.
pub fn settle(ex: &mut Executor, outcome: Outcome) {
    match outcome {
        Outcome::Return(value) => ex.gs.regs.gpr[RAX] = value as u64,
        Outcome::Restart => ex.restart_syscall(),
        Outcome::Parked | Outcome::Replaced => {}
    }
}

/// Registers in the frame at the top of the stack: (rip, rax, mask).
pub fn frame(ex: &Executor) -> (u64, i64, SigSet) {
    let uc = ex.gs.regs.gpr[RSP] + 8;
    let word = |at: u64| access::read::<u64>(uc + at).unwrap();
    (word(40 + 128), word(40 + 13 * 8) as i64, SigSet(word(296)))
}

pub fn pipe() -> [i32; 2] {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
    fds
}

pub fn raise(sig: i32) {
    // SAFETY: sends a signal to this process.
    unsafe { libc::kill(libc::getpid(), sig) };
}

pub fn in_ms(ms: i64) {
    let value = libc::timeval {
        tv_sec: 0,
        tv_usec: ms * 1000,
    };
    let timer = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: value,
    };
    // SAFETY: starts a timer.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

pub const THREAD_FLAGS: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID) as u64;

/// A thread whose rip tells it from others; its tid.
pub fn spawn(ex: &mut Executor, number: u64) -> i32 {
    let words = MEMORY + 0x1000 + number % 512 * 8;
    ex.gs.regs.rip = RIP + number;
    let stack = MEMORY + 0x4_0000;
    let tid = value(ex.spawn_thread(THREAD_FLAGS, stack, words, words, 0x7000 + number));
    ex.gs.regs.rip = RIP;
    assert!(tid > 0, "clone: {tid}");
    assert_eq!(access::read::<i32>(words), Ok(tid as i32));
    tid as i32
}
