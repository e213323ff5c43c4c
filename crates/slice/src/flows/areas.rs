//! Instructions that save and load many registers. In: an instruction. Out: where in memory each register goes, or comes
//! from.
//!
//! Which of them really go follows from a mask in rdx and rax and from the area's own header, so each may keep what it had.
//! Registers in their initial state are noted as such instead of written; loading gives the same back.

use iced_x86::{Instruction, Mnemonic, Register};

use super::{Flow, Flows, Site};
use crate::cells::Cells;

/// Where the registers are, in all of the formats: low halves, then behind the header the upper ones.
const LOW: u16 = 160;
const HEADER: u16 = 512;
const UPPER: u16 = 576;

/// What an instruction does to an area, if it does.
pub(super) fn area(ins: &Instruction) -> Option<Flows> {
    let (saves, extended) = match ins.mnemonic() {
        Mnemonic::Fxsave | Mnemonic::Fxsave64 => (true, false),
        Mnemonic::Fxrstor | Mnemonic::Fxrstor64 => (false, false),
        Mnemonic::Xsave
        | Mnemonic::Xsave64
        | Mnemonic::Xsavec
        | Mnemonic::Xsavec64
        | Mnemonic::Xsaveopt
        | Mnemonic::Xsaveopt64 => (true, true),
        Mnemonic::Xrstor | Mnemonic::Xrstor64 => (false, true),
        Mnemonic::Stmxcsr | Mnemonic::Vstmxcsr => return Some(control(ins, true)),
        Mnemonic::Ldmxcsr | Mnemonic::Vldmxcsr => return Some(control(ins, false)),
        _ => return None,
    };
    let mut mask = Cells::of(Register::EAX);
    mask.add(&Cells::of(Register::EDX));
    let mut rest = Cells::x87();
    rest.add(&Cells::mxcsr());
    let part = |at, len| Site::Part { access: 0, at, len };
    let mut pairs = Vec::new();
    for n in 0..16u16 {
        let low = Site::Register(Register::XMM0 + u32::from(n));
        pairs.push((low, part(LOW + 16 * n, 16)));
        if extended {
            pairs.push((Site::Upper(n as u8), part(UPPER + 16 * n, 16)));
        }
    }
    let mut flows = empty(ins, saves);
    for (register, memory) in pairs {
        let (to, from) = match saves {
            true => (memory, register),
            false => (register, memory),
        };
        let maybe = extended;
        flows.flows.push(Flow {
            maybe,
            ..Flow::moved(to, from)
        });
    }
    // What is kept of the x87 and of SSE's control, and the header.
    let others = [part(0, LOW), part(HEADER, UPPER - HEADER)];
    let others = &others[..1 + usize::from(extended)];
    match saves {
        true => {
            let mut from = rest;
            if extended {
                from.add(&mask);
            }
            for other in others {
                let from = vec![Site::Cells(from)];
                flows.flows.push(Flow::computed(*other, from, true));
            }
        }
        false => {
            let mut from = others.to_vec();
            if extended {
                from.push(Site::Cells(mask));
            }
            flows
                .flows
                .push(Flow::computed(Site::Cells(rest), from, extended));
        }
    }
    for flow in &flows.flows {
        flows.reads.extend(&flow.from);
        if let Some(cells) = flow.to.cells() {
            flows.defines.add(&cells);
        }
    }
    Some(flows)
}

fn empty(ins: &Instruction, saves: bool) -> Flows {
    let mut flows = Flows {
        writes: u8::from(saves),
        ..Flows::default()
    };
    for register in [ins.memory_base(), ins.memory_index()] {
        flows.addresses.add(&Cells::of(register));
    }
    flows
}

/// SSE's control and status word.
fn control(ins: &Instruction, saves: bool) -> Flows {
    let (word, memory) = (Site::Cells(Cells::mxcsr()), Site::Memory(0));
    let (to, from) = match saves {
        true => (memory, word),
        false => (word, memory),
    };
    let mut flows = empty(ins, saves);
    flows.flows.push(Flow::computed(to, vec![from], false));
    flows.reads.push(from);
    flows.defines = to.cells().unwrap_or_default();
    flows
}

/// The upper halves of all vector registers become zero, the lower ones stay.
pub(super) fn upper_halves() -> Flows {
    let mut halves = Cells::NONE;
    for register in 0..16 {
        halves.add(&Cells::vector(register, 16, 16));
    }
    Flows {
        flows: vec![Flow::computed(Site::Cells(halves), Vec::new(), false)],
        defines: halves,
        ..Flows::default()
    }
}
