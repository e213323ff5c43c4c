//! Breakpoints and watched memory: each stop compared with single steps, which know no instruments.

use std::collections::BTreeSet;
use std::ops::Range;

use super::*;
use crate::cache::accesses::Accesses;
use crate::cache::instruments::{Instruments, Watched};
use crate::context::{RDI, Regs};

/// The state before an instruction, and what it would touch.
pub(super) struct Step {
    pub regs: Regs,
    pub ticks: i64,
    pub accesses: Accesses,
}

pub(super) const PLENTY: i64 = 1 << 40;
pub(super) type Piece = unsafe extern "C" fn();
pub(super) const PIECES: [Piece; 5] = [
    piece_sum,
    piece_carry,
    piece_indirect,
    piece_loops,
    piece_memory,
];

impl Machine {
    fn data(&self) -> Range<u64> {
        self.base + 0x1000..self.base + 0x3000
    }

    /// Registers, flags and data as each run finds them.
    fn start_fresh(&mut self, piece: Piece) {
        self.gs.regs.gpr = std::array::from_fn(|n| 0x1111_0000 + n as u64);
        self.gs.regs.gpr[RCX] = 0x200;
        self.gs.regs.rflags = 0x202;
        self.gs.ymm = [[0x5a; 32]; 16];
        self.start(piece);
        self.gs.regs.gpr[RDI] = self.base + 0x2000;
        for (n, word) in self.data().step_by(8).enumerate() {
            // SAFETY: the machine's own data, which nothing else uses.
            unsafe { *(word as *mut u64) = 0x0101_0101_0101_0101 * (n as u64 % 250 + 3) };
        }
        // SAFETY: likewise: an image for fxrstor that can be restored.
        unsafe {
            let area = (self.base + 0x2000 + 1104) as *mut u8;
            area.write_bytes(0, 512);
            area.cast::<u16>().write(0x37f);
            area.add(24).cast::<u32>().write(0x1f80);
        }
        self.gs.ticks_left = PLENTY;
    }

    /// What single steps see, up to the system call.
    pub(super) fn trace(&mut self, piece: Piece) -> Vec<Step> {
        self.start_fresh(piece);
        let mut steps: Vec<Step> = Vec::new();
        loop {
            let step = Step {
                regs: self.gs.regs,
                ticks: PLENTY - self.gs.ticks_left,
                accesses: self.code.accesses(self.gs),
            };
            let exit = self
                .code
                .step(self.gs, &mut self.memory, &mut self.stats, 1);
            match exit {
                Exit::Syscall => return steps,
                Exit::Step | Exit::Indirect => steps.push(step),
                other => panic!("unexpected {other:?} at {:#x}", self.gs.regs.rip),
            }
        }
    }

    /// Runs with instruments; `stop` is told each exit by one of them. Returns the ticks.
    pub(super) fn run_instrumented(
        &mut self,
        piece: Piece,
        budget: i64,
        mut stop: impl FnMut(&mut Machine, Exit, i64),
    ) -> i64 {
        self.start_fresh(piece);
        let (mut ticks, mut past) = (0, false);
        self.gs.ticks_left = budget;
        loop {
            let (code, memory) = (&mut self.code, &mut self.memory);
            let exit = if std::mem::take(&mut past) {
                code.enter_past(self.gs, memory, &mut self.stats)
            } else {
                code.enter(self.gs, memory, &mut self.stats)
            };
            let now = ticks + budget - self.gs.ticks_left;
            match exit {
                Exit::Syscall => return now,
                Exit::Budget => {
                    ticks = now;
                    self.gs.ticks_left = budget;
                }
                Exit::Break | Exit::Watch => {
                    stop(self, exit, now);
                    past = true;
                }
                other => panic!("unexpected {other:?} at {:#x}", self.gs.regs.rip),
            }
        }
    }

    pub(super) fn instrument(&mut self, instruments: Instruments) {
        self.code.instrument(self.gs, &self.memory, instruments);
    }
}

fn breaks(pcs: impl IntoIterator<Item = u64>) -> Instruments {
    Instruments {
        breaks: pcs.into_iter().collect(),
        ..Instruments::default()
    }
}

#[test]
fn a_breakpoint_stops_each_time_with_everything_exact() {
    Machine::run_all(|machine| {
        for piece in PIECES {
            let trace = machine.trace(piece);
            let ticks = trace.last().unwrap().ticks;
            let pcs: BTreeSet<u64> = trace.iter().map(|step| step.regs.rip).collect();
            let one_each = pcs.iter().map(|&pc| [pc].into());
            let even = pcs.iter().copied().step_by(2).collect();
            let sets: Vec<BTreeSet<u64>> = one_each.chain([even, pcs.clone()]).collect();
            for set in sets {
                for budget in [PLENTY, 1, 3] {
                    machine.instrument(breaks(set.iter().copied()));
                    let mut expected = trace.iter().filter(|step| set.contains(&step.regs.rip));
                    let end = machine.run_instrumented(piece, budget, |machine, exit, ticks| {
                        assert_eq!(exit, Exit::Break);
                        let step = expected.next().expect("no more stops than steps");
                        assert_eq!(machine.gs.regs, step.regs, "at {:#x}", step.regs.rip);
                        assert_eq!(ticks, step.ticks);
                    });
                    assert!(expected.next().is_none(), "all stops");
                    assert_eq!(end, ticks);
                }
            }
            // And back to what it was.
            machine.instrument(Instruments::default());
            let end = machine.run_instrumented(piece, PLENTY, |_, exit, _| panic!("{exit:?}"));
            assert_eq!(end, ticks);
        }
    });
}

/// What the gate is for leaves each time; of the rest, some may.
#[test]
fn a_gate_misses_nothing() {
    Machine::run_all(|machine| {
        for piece in PIECES {
            let trace = machine.trace(piece);
            let ticks = trace.last().unwrap().ticks;
            let gates: BTreeSet<(u64, u8, i32)> = trace
                .iter()
                .flat_map(|step| [0u8, 3, 4, 6, 13].map(|register| (step.regs.rip, register, 24)))
                .collect();
            let value = |regs: &Regs, register: u8| regs.gpr[register as usize].wrapping_add(24);
            // Values that come, one of each register, and one that doesn't.
            for wanted in [0u8, 3, 4, 6, 13].map(|r| value(&trace[trace.len() / 2].regs, r)) {
                if wanted == u64::MAX {
                    continue;
                }
                machine.instrument(Instruments {
                    gates: gates.clone(),
                    gated: std::iter::once(wanted..wanted + 1).collect(),
                    ..Instruments::default()
                });
                let is_due = |regs: &Regs| {
                    let mut own = gates.iter().filter(|gate| gate.0 == regs.rip);
                    own.any(|&(_, register, _)| value(regs, register) == wanted)
                };
                let mut expected = trace.iter().filter(|step| is_due(&step.regs)).peekable();
                let end = machine.run_instrumented(piece, PLENTY, |machine, exit, ticks| {
                    assert_eq!(exit, Exit::Break);
                    if let Some(step) = expected.peek()
                        && step.regs == machine.gs.regs
                        && step.ticks == ticks
                    {
                        expected.next();
                    } else {
                        assert!(!is_due(&machine.gs.regs), "at {:#x}", machine.gs.regs.rip);
                    }
                });
                assert!(expected.next().is_none(), "all that are due");
                assert_eq!(end, ticks);
            }
            machine.instrument(Instruments::default());
        }
    });
}

#[test]
fn flags_are_exact_at_every_tick_if_wanted() {
    Machine::run_all(|machine| {
        for piece in PIECES {
            let trace = machine.trace(piece);
            machine.instrument(Instruments {
                exact: true,
                ..Instruments::default()
            });
            let mut firsts = trace.windows(2).filter(|w| w[0].ticks != w[1].ticks);
            machine.start_fresh(piece);
            loop {
                machine.gs.ticks_left = 1;
                let (code, memory) = (&mut machine.code, &mut machine.memory);
                match code.enter(machine.gs, memory, &mut machine.stats) {
                    Exit::Budget => {
                        let step = &firsts.next().expect("no more ticks than in the trace")[1];
                        assert_eq!(machine.gs.regs, step.regs);
                    }
                    _ => break,
                }
            }
            assert!(firsts.next().is_none());
        }
    });
}

#[test]
fn a_watch_misses_nothing() {
    let kinds = [(true, false), (false, true), (true, true)];
    Machine::run_all(|machine| {
        for piece in PIECES {
            let trace = machine.trace(piece);
            let ticks = trace.last().unwrap().ticks;
            let mut ranges: Vec<Range<u64>> = Vec::new();
            for access in trace.iter().flat_map(|step| &step.accesses) {
                let (start, end) = (access.addr, access.addr.wrapping_add(access.len));
                ranges.extend([start..start + 1, end - 1..end, start..end]);
                ranges.extend([start - 1..start, end..end + 1]);
            }
            ranges.extend([machine.data(), 0..u64::MAX - 4096]);
            ranges.sort_by_key(|range| (range.start, range.end));
            ranges.dedup();
            if ranges.len() > 400 {
                ranges = ranges.into_iter().step_by(17).collect();
            }
            for range in ranges {
                for (reads, writes) in kinds {
                    let watched = Watched {
                        range: range.clone(),
                        reads,
                        writes,
                    };
                    machine.instrument(Instruments {
                        watches: vec![watched],
                        ..Instruments::default()
                    });
                    let hits = |accesses: &Accesses| {
                        accesses.iter().any(|access| {
                            (access.read && reads || access.write && writes)
                                && access.touches(&range)
                        })
                    };
                    let mut expected = trace.iter().filter(|step| hits(&step.accesses));
                    let end = machine.run_instrumented(piece, PLENTY, |machine, exit, ticks| {
                        assert_eq!(exit, Exit::Watch);
                        let accesses = machine.code.accesses(machine.gs);
                        if !hits(&accesses) {
                            return;
                        }
                        let step = expected.next().expect("no more hits than steps");
                        assert_eq!(machine.gs.regs, step.regs, "{range:x?}");
                        assert_eq!((ticks, &accesses), (step.ticks, &step.accesses));
                    });
                    let missed = expected.next().map(|step| step.regs.rip);
                    assert_eq!(missed, None, "{range:x?} {reads} {writes}");
                    assert_eq!(end, ticks);
                }
            }
        }
    });
}

#[test]
fn what_changes_was_told() {
    Machine::run_all(|machine| {
        machine.start_fresh(piece_memory);
        let data = machine.base + 0x1000..machine.base + 0x4000;
        let copy = |range: &Range<u64>| {
            let len = (range.end - range.start) as usize;
            // SAFETY: the machine's own memory, mapped and readable.
            unsafe { std::slice::from_raw_parts(range.start as *const u8, len) }.to_vec()
        };
        let mut changes = 0;
        loop {
            let before = copy(&data);
            let accesses = machine.code.accesses(machine.gs);
            let pc = machine.gs.regs.rip;
            let (code, memory) = (&mut machine.code, &mut machine.memory);
            match code.step(machine.gs, memory, &mut machine.stats, 1) {
                Exit::Step | Exit::Indirect => {}
                _ => break,
            }
            for (n, (old, new)) in before.iter().zip(copy(&data)).enumerate() {
                let at = data.start + n as u64;
                if *old != new {
                    changes += 1;
                    let told = |access: &&crate::cache::accesses::Access| {
                        access.write && access.touches(&(at..at + 1))
                    };
                    assert!(
                        accesses.iter().any(|access| told(&access)),
                        "{at:#x} at {pc:#x}"
                    );
                }
            }
        }
        assert!(changes > 100, "{changes}");
    });
}

#[test]
fn a_break_comes_before_a_watch_and_is_passed_with_it() {
    Machine::run_all(|machine| {
        let trace = machine.trace(piece_writes);
        machine.start_fresh(piece_writes);
        let pc = machine.gs.regs.rip;
        machine.instrument(Instruments {
            watches: vec![Watched {
                range: 0..u64::MAX - 4096,
                reads: true,
                writes: true,
            }],
            ..breaks([pc])
        });
        let mut stops = 0;
        machine.run_instrumented(piece_writes, PLENTY, |_, exit, _| {
            assert_eq!(exit, Exit::Break);
            stops += 1;
        });
        let visits = trace.iter().filter(|step| step.regs.rip == pc).count();
        assert_eq!(stops, visits);
    });
}

#[test]
fn switching_on_and_off_translates_once() {
    Machine::with(Body::Image, |machine| {
        machine.start_fresh(piece_sum);
        let pc = machine.gs.regs.rip;
        let mut translated = Vec::new();
        for _ in 0..3 {
            machine.instrument(Instruments::default());
            machine.run_instrumented(piece_sum, PLENTY, |_, _, _| unreachable!());
            machine.instrument(breaks([pc]));
            let mut stops = 0;
            machine.run_instrumented(piece_sum, PLENTY, |_, _, _| stops += 1);
            assert_eq!(stops, 1);
            translated.push(machine.stats.blocks);
        }
        assert_eq!(translated[0], translated[2], "{translated:?}");
    });
}

/// Time that this thread has had: others may be at work too.
fn processor_time() -> u128 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u128 * 1_000_000_000 + time.tv_nsec as u128
}

#[test]
#[ignore = "a measurement"]
fn what_instruments_cost() {
    const TIMES: u64 = 6_000_000;
    Machine::with(Body::Image, |machine| {
        let run = |machine: &mut Machine, what: &str| {
            let mut stops = 0u64;
            machine.start_fresh(piece_writes);
            let (pc, data) = (machine.gs.regs.rip, machine.base + 0x2000);
            let start = processor_time();
            let mut left = TIMES;
            let mut past = false;
            while left > 0 {
                if !past {
                    machine.gs.regs.gpr[RCX] = left.min(0xf00);
                    machine.gs.regs.gpr[RDI] = data;
                    machine.gs.regs.rip = pc;
                    machine.gs.ticks_left = PLENTY;
                }
                let (code, memory) = (&mut machine.code, &mut machine.memory);
                let exit = if past {
                    code.enter_past(machine.gs, memory, &mut machine.stats)
                } else {
                    code.enter(machine.gs, memory, &mut machine.stats)
                };
                past = matches!(exit, Exit::Break | Exit::Watch);
                stops += past as u64;
                if !past {
                    left -= left.min(0xf00);
                } else if what.contains("looked at") {
                    std::hint::black_box(machine.code.accesses(machine.gs));
                }
            }
            let all = (processor_time() - start) as f64;
            let (each, ms) = (all / TIMES as f64, all / 1e6);
            println!("{what}: {each:.1} ns each, {ms:.1} ms, {stops} stops");
        };
        let watch = |range| Instruments {
            watches: vec![Watched {
                range,
                reads: false,
                writes: true,
            }],
            ..Instruments::default()
        };
        run(machine, "plain");
        let (base, data) = (machine.base, machine.base + 0x2000);
        let pc = {
            machine.start(piece_writes);
            machine.gs.regs.rip
        };
        machine.instrument(watch(base + 0x1000..base + 0x1008));
        run(machine, "watched elsewhere");
        machine.instrument(watch(data + 0xff8..data + 0x1000));
        run(machine, "watched near");
        machine.instrument(watch(0x10000..data - 64));
        run(machine, "watched all around");
        machine.instrument(watch(data..data + 0x1000));
        run(machine, "watched, all hit");
        run(machine, "watched, all hit, looked at");
        {
            let mut shadow = crate::cache::shadow::Shadow::map().unwrap();
            shadow.pass(0, true, true);
            machine.instrument(Instruments {
                shadow: true,
                ..Instruments::default()
            });
            run(machine, "a state that is passed");
            shadow.pass(0, false, false);
            run(machine, "a state that isn't, looked at");
            machine.instrument(Instruments::default());
        }
        machine.instrument(breaks([pc + 100]));
        run(machine, "break elsewhere");
        machine.instrument(breaks([pc]));
        run(machine, "break, all hit");
        machine.instrument(Instruments::default());
        run(machine, "plain");
        let start = processor_time();
        for n in 0..1000 {
            machine.instrument(if n % 2 == 0 {
                breaks([pc])
            } else {
                Instruments::default()
            });
            machine.start_fresh(piece_writes);
            machine.gs.regs.gpr[RCX] = 1;
            let (code, memory) = (&mut machine.code, &mut machine.memory);
            code.enter_past(machine.gs, memory, &mut machine.stats);
        }
        println!("switching: {} ns", (processor_time() - start) / 1000);
        machine.start_fresh(piece_sum);
        let start = processor_time();
        for _ in 0..1000 {
            let (code, memory) = (&mut machine.code, &mut machine.memory);
            code.step(machine.gs, memory, &mut machine.stats, 1);
        }
        println!("a step: {} ns", (processor_time() - start) / 1000);
    });
}

#[test]
#[ignore = "a measurement"]
fn what_a_condition_costs() {
    use crate::replay::agent::{Condition, Numbers, Subject, general_register};
    struct Now<'a>(&'a Regs);
    impl Subject for Now<'_> {
        fn register(&self, number: u16) -> Option<u64> {
            let numbers = Numbers {
                fs_base: 58,
                gs_base: 59,
            };
            general_register(self.0, numbers, number)
        }
        fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
            crate::guest::access::read_bytes(addr, bytes).is_ok()
        }
    }
    // *(int *)(rbp - 20) == 5
    let bytes = [
        0x26, 0, 6, 0x22, 20, 0x03, 0x19, 0x16, 32, 0x22, 5, 0x13, 0x27,
    ];
    let condition = Condition::decode(&bytes).unwrap();
    Machine::with(Body::Image, |machine| {
        let mut regs = Regs::default();
        regs.gpr[crate::context::RBP] = machine.base + 0x2000;
        let start = processor_time();
        const TIMES: u128 = 10_000_000;
        for _ in 0..TIMES {
            let value = condition.evaluate(std::hint::black_box(&Now(&regs)));
            assert_eq!(std::hint::black_box(value), Ok(0));
        }
        println!("a condition: {} ns", (processor_time() - start) / TIMES);
    });
}
