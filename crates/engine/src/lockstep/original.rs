//! The translated side: takes the original to where the twin stands.

use crate::context::Exit;
use crate::executor::Executor;

/// Where the original got.
#[derive(Debug, Default)]
pub struct Reached {
    /// None: it stands at the instruction asked for.
    pub exit: Option<Exit>,
    /// Ticks it took.
    pub ticks: i64,
}

impl Reached {
    pub fn describe(&self) -> String {
        match self.exit {
            None => "went on step by step".into(),
            Some(Exit::Budget) => "ticks".into(),
            Some(exit) => format!("left because of {exit:?}"),
        }
    }
}

/// Runs the translation for `ticks` ticks.
pub fn to_tick(ex: &mut Executor, ticks: i64, attention: &mut bool) -> Reached {
    run(ex, ticks, 0, attention)
}

/// Runs the translation until it asks something of the executor, which must be `ticks` ticks away.
pub fn to_exit(ex: &mut Executor, ticks: i64, attention: &mut bool) -> Reached {
    run(ex, ticks, 1, attention)
}

/// Runs the translation for `ticks` ticks and then, in one-instruction fragments, to `pc`.
pub fn to_instruction(
    ex: &mut Executor,
    ticks: i64,
    pc: u64,
    steps: u64,
    attention: &mut bool,
) -> Reached {
    let mut reached = Reached::default();
    if ticks > 0 {
        reached = run(ex, ticks, 0, attention);
        if reached.exit != Some(Exit::Budget) || reached.ticks != ticks {
            return reached;
        }
        reached.exit = None;
    }
    // Fragments count ticks too; there shall be none.
    const PLENTY: i64 = 1 << 20;
    ex.gs.ticks_left = PLENTY;
    ex.gs.kicked = 0;
    let mut left = steps;
    while ex.gs.regs.rip != pc && left > 0 {
        left -= 1;
        let exit = ex.code.step(ex.gs, &mut ex.memory, &mut ex.stats, 1);
        match exit {
            Exit::Step => {}
            Exit::Attention => {
                calm(ex, attention);
                left += 1;
            }
            Exit::Fault if writes_code(ex) => {}
            _ => {
                reached.exit = Some(exit);
                break;
            }
        }
    }
    reached.ticks += PLENTY - ex.gs.ticks_left - ex.gs.kicked;
    ex.gs.kicked = 0;
    reached
}

fn run(ex: &mut Executor, ticks: i64, more: i64, attention: &mut bool) -> Reached {
    let budget = ticks + more;
    ex.gs.ticks_left = budget;
    ex.gs.kicked = 0;
    loop {
        let exit = ex.code.enter(ex.gs, &mut ex.memory, &mut ex.stats);
        // A signal's kick cuts the budget; the stretch is finished first all the same.
        ex.gs.ticks_left += std::mem::take(&mut ex.gs.kicked);
        let used = budget - ex.gs.ticks_left;
        match exit {
            Exit::Attention => calm(ex, attention),
            Exit::Budget if used < budget => {}
            Exit::Fault if writes_code(ex) => {
                if ex.gs.ticks_left <= 0 {
                    return Reached {
                        exit: Some(Exit::Budget),
                        ticks: budget,
                    };
                }
            }
            _ => {
                return Reached {
                    exit: Some(exit),
                    ticks: used,
                };
            }
        }
    }
}

/// A signal waits: remembers it, so that the stretch can be finished.
fn calm(ex: &mut Executor, attention: &mut bool) {
    *attention = true;
    // SAFETY: a plain field that handlers on this kernel thread write.
    unsafe { std::ptr::write_volatile(&raw mut ex.gs.attention, 0) };
}

/// A write to a page whose code was translated: no fault of the guest's; it has been done now.
fn writes_code(ex: &mut Executor) -> bool {
    const PAGE_FAULT: u64 = 14;
    const WRITE: u64 = 2;
    let fault = ex.gs.fault;
    fault.signo == libc::SIGSEGV
        && fault.trapno == PAGE_FAULT
        && fault.err & WRITE != 0
        && ex.code_write_fault(fault.addr)
}
