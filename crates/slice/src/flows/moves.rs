//! Destinations with sources of their own. In: an instruction. Out: its flows, if it is known by name.

use iced_x86::{Code, EncodingKind, Instruction, Mnemonic, OpKind, Register};

use super::{ALL, Flow, Site};

/// Destinations with sources of their own.
pub(super) fn by_name(ins: &Instruction) -> Option<Vec<Flow>> {
    let moved = Flow::moved;
    let constant = |to| Flow::computed(to, Vec::new(), false);
    let bytes = |register: Register| register.is_gpr() || register.is_vector_register();
    let plain = |n| ins.op_kind(n) != OpKind::Register || bytes(ins.op_register(n));
    if !(0..ins.op_count()).all(plain) {
        return None;
    }
    let site = |n: u32| match ins.op_kind(n) {
        OpKind::Register => Some(Site::Register(ins.op_register(n))),
        OpKind::Memory => Some(Site::Memory(0)),
        _ => None,
    };
    match ins.mnemonic() {
        Mnemonic::Mov
        | Mnemonic::Movzx
        | Mnemonic::Movaps
        | Mnemonic::Movups
        | Mnemonic::Movapd
        | Mnemonic::Movupd
        | Mnemonic::Movdqa
        | Mnemonic::Movdqu
        | Mnemonic::Lddqu
        | Mnemonic::Movntdq
        | Mnemonic::Movnti
        | Mnemonic::Movq
        | Mnemonic::Movd
        | Mnemonic::Vmovaps
        | Mnemonic::Vmovups
        | Mnemonic::Vmovapd
        | Mnemonic::Vmovupd
        | Mnemonic::Vmovdqa
        | Mnemonic::Vmovdqu
        | Mnemonic::Vmovq
        | Mnemonic::Vmovd
            if ins.op_count() == 2 =>
        {
            let to = whole(ins, site(0)?);
            match site(1) {
                Some(from) => Some(vec![Flow {
                    width: width(ins),
                    ..moved(to, from)
                }]),
                // A constant.
                None => Some(vec![constant(to)]),
            }
        }
        Mnemonic::Push => {
            let to = Site::Memory(u8::from(ins.op0_kind() == OpKind::Memory));
            Some(vec![match site(0) {
                Some(from) => moved(to, from),
                None => constant(to),
            }])
        }
        Mnemonic::Pop if ins.op0_kind() == OpKind::Register => {
            let to = ins.op0_register();
            (to.full_register() != Register::RSP)
                .then(|| vec![moved(Site::Register(to), Site::Memory(0))])
        }
        Mnemonic::Leave if ins.code() == Code::Leaveq => Some(vec![
            Flow::computed(
                Site::Register(Register::RSP),
                vec![Site::Register(Register::RBP)],
                false,
            ),
            moved(Site::Register(Register::RBP), Site::Memory(0)),
        ]),
        // A load fills the rest with zeros; a store takes what it writes.
        Mnemonic::Movss | Mnemonic::Movsd | Mnemonic::Vmovss | Mnemonic::Vmovsd
            if !ins.is_string_instruction()
                && ins.op_count() == 2
                && (0..2).any(|n| ins.op_kind(n) == OpKind::Memory) =>
        {
            let to = match site(0)? {
                Site::Register(register) if ins.encoding() == EncodingKind::VEX => {
                    Site::Register(Register::YMM0 + register.number() as u32)
                }
                to => to,
            };
            Some(vec![moved(to, site(1)?)])
        }
        Mnemonic::Call if ins.op0_kind() != OpKind::Memory => Some(vec![constant(Site::Memory(0))]),
        Mnemonic::Xchg if ins.op_count() == 2 => {
            let (a, b) = (site(0)?, site(1)?);
            Some(vec![moved(whole(ins, a), b), moved(whole(ins, b), a)])
        }
        _ => None,
    }
}

/// The register that an operand really changes: 32 bits clear the rest, and so do vector moves of newer kinds.
fn whole(ins: &Instruction, site: Site) -> Site {
    let Site::Register(register) = site else {
        return site;
    };
    let clears = matches!(ins.encoding(), EncodingKind::VEX)
        || matches!(
            ins.code(),
            Code::Movq_xmm_xmmm64 | Code::Movd_xmm_rm32 | Code::Movq_xmm_rm64
        );
    if register.is_gpr32() {
        Site::Register(register.full_register())
    } else if register.is_vector_register() && clears {
        let number = register.number() as u32;
        let all = match matches!(ins.encoding(), EncodingKind::VEX) {
            true => Register::YMM0,
            false => Register::XMM0,
        };
        Site::Register(all + number)
    } else {
        site
    }
}

/// How many bytes a move between registers of different kinds takes.
fn width(ins: &Instruction) -> u8 {
    match ins.mnemonic() {
        Mnemonic::Movd | Mnemonic::Vmovd => 4,
        Mnemonic::Movq | Mnemonic::Vmovq => 8,
        _ => ALL,
    }
}
