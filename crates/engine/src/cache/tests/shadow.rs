//! States of granules: each exit compared with single steps, which don't look at them.

use std::collections::BTreeSet;

use super::instruments::{PIECES, PLENTY};
use super::*;
use crate::cache::accesses::{Access, Accesses};
use crate::cache::instruments::Instruments;
use crate::cache::shadow::Shadow;

/// A state that is passed as a table says, and one that always is; most memory has that.
const ODD: u8 = 7;
const PASSED: u8 = 0;

fn shadow() -> Shadow {
    let mut shadow = Shadow::map().unwrap();
    for state in 0..=u8::MAX {
        shadow.pass(state, true, true);
    }
    shadow
}

fn granules(access: &Access) -> std::ops::RangeInclusive<u32> {
    Shadow::granule(access.addr)..=Shadow::granule(access.addr.wrapping_add(access.len - 1))
}

const WANTED: Instruments = Instruments {
    breaks: BTreeSet::new(),
    gates: BTreeSet::new(),
    gated: Vec::new(),
    watches: Vec::new(),
    shadow: true,
    exact: false,
    trace: false,
    every: None,
    locked: false,
    confined: None,
};

#[test]
fn no_access_to_a_state_is_missed() {
    Machine::run_all(|machine| {
        let mut shadow = shadow();
        for piece in PIECES {
            let trace = machine.trace(piece);
            let ticks = trace.last().unwrap().ticks;
            let touched = trace.iter().flat_map(|step| &step.accesses);
            let touched: BTreeSet<u32> = touched
                .filter(|access| access.len > 0 && access.len < 4096)
                .flat_map(granules)
                .collect();
            let one_each = touched.iter().map(|&granule| BTreeSet::from([granule]));
            let some = touched.iter().copied().step_by(3).collect();
            let mut sets: Vec<BTreeSet<u32>> = one_each.step_by(touched.len() / 100 + 1).collect();
            sets.extend([some, touched.clone(), BTreeSet::new()]);
            for set in sets {
                for &granule in &set {
                    shadow.set(granule, ODD);
                }
                for (reads, writes) in [(true, false), (false, true), (true, true)] {
                    shadow.pass(ODD, !reads, !writes);
                    machine.instrument(WANTED);
                    let hits = |accesses: &Accesses| {
                        let concerned = |access: &&Access| {
                            access.write && writes || access.read && !access.write && reads
                        };
                        let mut concerned = accesses.iter().filter(concerned);
                        concerned.any(|access| granules(access).any(|g| set.contains(&g)))
                    };
                    let mut expected = trace.iter().filter(|step| hits(&step.accesses));
                    let end = machine.run_instrumented(piece, PLENTY, |machine, exit, ticks| {
                        assert_eq!(exit, Exit::Watch);
                        let accesses = machine.code.accesses(machine.gs);
                        if !hits(&accesses) {
                            return;
                        }
                        let step = expected.next().expect("no more hits than steps");
                        assert_eq!(machine.gs.regs, step.regs, "{set:x?}");
                        assert_eq!((ticks, &accesses), (step.ticks, &step.accesses));
                    });
                    let missed = expected.next().map(|step| step.regs.rip);
                    assert_eq!(missed, None, "{set:x?} {reads} {writes}");
                    assert_eq!(end, ticks);
                }
                for &granule in &set {
                    shadow.set(granule, PASSED);
                }
            }
            machine.instrument(Instruments::default());
        }
    });
}

#[test]
fn states_that_were_set_are_found_again() {
    Machine::with(Body::Image, |_| {
        let mut shadow = shadow();
        assert_eq!(shadow.next_used(0), None);
        for granule in [5, 0x10_0000, u32::MAX] {
            shadow.set(granule, ODD);
        }
        let found = |from| {
            let used = shadow.next_used(from);
            used.and_then(|used| (used..=u32::MAX).find(|&granule| shadow.state(granule) == ODD))
        };
        assert_eq!(found(0), Some(5));
        assert!(shadow.next_used(6) == Some(6), "the same page");
        assert_eq!(shadow.next_used(0x1000), Some(0x10_0000));
        assert_eq!(shadow.next_used(0x10_1000), Some(u32::MAX / 4096 * 4096));
        assert_eq!(shadow.next_used(u32::MAX), Some(u32::MAX));
        assert!(Shadow::map().is_err(), "there is one already");
    });
}

#[test]
fn looks_reach_as_far_as_an_access() {
    for len in 1..=64u32 {
        for addr in 0..16u64 {
            let last = (addr + u64::from(len) - 1) / 16;
            let seen = (addr / 16) + u64::from(Shadow::looks(len)) - 1 + 1;
            assert!(last <= seen, "{len} bytes at {addr}");
        }
    }
    assert_eq!(
        (Shadow::looks(8), Shadow::looks(16), Shadow::looks(32)),
        (1, 1, 2)
    );
}
