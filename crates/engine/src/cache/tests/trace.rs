//! Traces: what their entries tell, compared with single steps, which write none.

use super::instruments::{PIECES, PLENTY};
use super::*;
use crate::cache::accesses::Accesses;
use crate::cache::instruments::Instruments;
use crate::trace::buffer::{self, Buffer, Ring};
use crate::trace::read::{Backwards, Bases, Entry, Tables, touched};

fn wanted() -> Instruments {
    Instruments {
        trace: true,
        ..Instruments::default()
    }
}

/// An executed instruction, as a trace tells of it.
struct Told {
    pc: u64,
    accesses: Accesses,
}

/// What segments tell, from the first instruction to the last.
fn told(tables: &Tables, segments: &[Vec<u8>], bases: Bases) -> Vec<Told> {
    let mut all = Vec::new();
    let mut odd: Option<usize> = None;
    for segment in segments.iter().rev() {
        for entry in Backwards::new(tables, segment) {
            let entry = entry.expect("entries make sense");
            assert_eq!(odd.is_some(), matches!(entry, Entry::Touched(_)));
            match entry {
                Entry::Run { end, slots } => {
                    let block = &tables.blocks[end.block as usize];
                    let done = &block.instructions[..end.count as usize];
                    for traced in done.iter().rev() {
                        if traced.odd {
                            odd = Some(all.len());
                        }
                        let accesses = block.accesses(traced, slots, bases);
                        all.push(Told {
                            pc: traced.ins.ip(),
                            accesses: accesses.map(|access| access.expect("slots")).collect(),
                        });
                    }
                }
                Entry::Touched(bytes) => {
                    all[odd.take().unwrap()].accesses = touched(bytes).collect();
                }
                other => panic!("{other:?}"),
            }
        }
    }
    all.reverse();
    all
}

#[test]
fn a_trace_tells_each_instruction_and_each_access() {
    Machine::run_all(|machine| {
        for piece in PIECES {
            let steps = machine.trace(piece);
            for budget in [PLENTY, 1, 3] {
                let mut ring = Ring::map(buffer::create().unwrap()).unwrap();
                ring.clear(&[]);
                let buffer = Buffer::map(ring.fd()).unwrap();
                machine.instrument(wanted());
                machine.code.trace_into(machine.gs, Some(buffer));
                let bases = Bases {
                    fs: machine.gs.engine_fs,
                    gs: machine.gs.regs.gs_base,
                };
                let ticks = machine.run_instrumented(piece, budget, |_, exit, _| {
                    panic!("{exit:?} isn't for the caller")
                });
                assert_eq!(ticks, steps.last().unwrap().ticks);
                assert!(machine.code.trace_flush(machine.gs));
                let segments: Vec<_> = std::iter::from_fn(|| ring.take()).collect();
                let mut tables = Tables::default();
                assert!(tables.add(&ring.rows(0)));
                let told = told(&tables, &segments, bases);
                machine.code.trace_into(machine.gs, None);
                machine.instrument(Instruments::default());
                for (n, (told, step)) in told.iter().zip(&steps).enumerate() {
                    assert_eq!(told.pc, step.regs.rip, "instruction {n}");
                    let (mut a, mut b) = (told.accesses.clone(), step.accesses.clone());
                    a.retain(|access| access.len > 0);
                    b.retain(|access| access.len > 0);
                    assert_eq!(a, b, "instruction {n} at {:#x}", told.pc - machine.base);
                }
                assert_eq!(told.len(), steps.len());
            }
        }
    });
}
