//! Instructions that can't be copied as they are, and what is emitted for them.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Mnemonic, OpKind, Register};

use super::emit::{Emitter, RCX};
use crate::cache::region::{Displaced, Spilled};
use crate::context::{GsBlock, Regs};
use std::mem::offset_of;

const GS_BASE: usize = offset_of!(GsBlock, regs) + offset_of!(Regs, gs_base);
const RAX: u8 = 0;
const RDX: u8 = 2;

/// Instructions that the engine carries out.
pub fn is_engine_matter(ins: &Instruction) -> bool {
    match ins.mnemonic() {
        Mnemonic::Cpuid
        | Mnemonic::Rdtsc
        | Mnemonic::Rdtscp
        | Mnemonic::Rdrand
        | Mnemonic::Rdseed
        | Mnemonic::Rdpid
        | Mnemonic::Rdpmc
        | Mnemonic::Xsave
        | Mnemonic::Xsave64
        | Mnemonic::Xsavec
        | Mnemonic::Xsavec64
        | Mnemonic::Xsaveopt
        | Mnemonic::Xsaveopt64
        | Mnemonic::Fxsave
        | Mnemonic::Fxsave64
        | Mnemonic::Fnsave
        | Mnemonic::Fnstenv
        | Mnemonic::Sgdt
        | Mnemonic::Sidt
        | Mnemonic::Sldt
        | Mnemonic::Str
        | Mnemonic::Smsw
        | Mnemonic::Lar
        | Mnemonic::Lsl
        | Mnemonic::Verr
        | Mnemonic::Verw
        | Mnemonic::Xgetbv
        | Mnemonic::Pause
        | Mnemonic::Wrfsbase
        | Mnemonic::Wrgsbase
        | Mnemonic::Rdgsbase
        | Mnemonic::Sysenter
        | Mnemonic::Xtest
        | Mnemonic::Lfs
        | Mnemonic::Lgs
        | Mnemonic::Lss => true,
        Mnemonic::Mov | Mnemonic::Pop => {
            ins.op0_kind() == OpKind::Register && ins.op0_register().is_segment_register()
        }
        _ => false,
    }
}

/// Of extensions that the guest isn't shown, and that would reach beyond it or tell what differs
/// each time: transactions apart, which the engine answers.
pub fn is_hidden(ins: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        ins.mnemonic(),
        // Protection keys: the engine's own accesses would be bound by them.
        Rdpkru | Wrpkru
            // Waiting for a time, and saying whether it came.
            | Umonitor | Umwait | Tpause
            // Counters, user interrupts, devices, enclaves.
            | Rdpru | Senduipi | Clui | Stui | Testui | Uiret | Enqcmd | Enqcmds | Enclu | Xsusldtrk | Xresldtrk
    )
}

/// XRSTOR: its component mask must be held to what the guest is shown.
pub fn is_xrstor(ins: &Instruction) -> bool {
    matches!(ins.mnemonic(), Mnemonic::Xrstor | Mnemonic::Xrstor64)
}

/// `rcx` ← target of an indirect branch; rcx is spilled and still holds the guest's value.
pub fn load_target(code: &mut Emitter, ins: &Instruction) {
    if ins.op0_kind() == OpKind::Register {
        code.mov_reg(RCX, ins.op0_register().number() as u8);
        return;
    }
    if ins.memory_segment() == Register::GS {
        let load = Instruction::with2(Code::Mov_r64_rm64, Register::RCX, memory_of(ins))
            .expect("mov rcx, [mem]");
        let mut load = load;
        load.set_segment_prefix(Register::GS);
        load.set_ip(ins.ip());
        through_guest_gs(code, &load);
        return;
    }
    if ins.is_ip_rel_memory_operand() {
        let addr = ins.ip_rel_memory_address();
        let next = code.here() as u64 + 7;
        if let Ok(disp) = i32::try_from(addr.wrapping_sub(next) as i64) {
            // mov rcx, [rip + disp]
            code.raw(&[0x48, 0x8b, 0x0d]);
            code.imm32(disp as u32);
        } else {
            code.mov_imm(RCX, addr);
            // mov rcx, [rcx]: a fault here finds rcx in spill slot 0
            code.raw(&[0x48, 0x8b, 0x09]);
        }
        return;
    }
    let load = Instruction::with2(Code::Mov_r64_rm64, Register::RCX, memory_of(ins))
        .expect("mov rcx, [mem]");
    encode(code, &load);
}

fn memory_of(ins: &Instruction) -> MemoryOperand {
    MemoryOperand::new(
        ins.memory_base(),
        ins.memory_index(),
        ins.memory_index_scale(),
        ins.memory_displacement64() as i64,
        ins.memory_displ_size(),
        false,
        ins.segment_prefix(),
    )
}

/// A RIP-relative operand out of reach (code in the high arena): its address goes into a register.
pub fn far_operand(code: &mut Emitter, ins: &Instruction) -> Spilled {
    let reg = scratch(ins, &[]);
    code.spill(1, number(reg));
    code.mov_imm(number(reg), ins.ip_rel_memory_address());
    encode_through(code, ins, reg);
    code.unspill(number(reg), 1);
    Spilled::Reg(number(reg))
}

/// An operand relative to the guest's gs, which the engine occupies.
pub fn through_guest_gs(code: &mut Emitter, ins: &Instruction) -> Spilled {
    let reg = scratch(ins, &[]);
    let base = scratch(ins, &[reg]);
    code.spill(1, number(reg));
    code.spill(2, number(base));
    address_into(code, ins, reg);
    code.load_gs(number(base), GS_BASE);
    // lea reg, [reg + base]
    let sum = MemoryOperand::new(reg, base, 1, 0, 0, false, Register::None);
    encode(
        code,
        &Instruction::with2(Code::Lea_r64_m, reg, sum).expect("lea"),
    );
    code.unspill(number(base), 2);
    encode_through(code, ins, reg);
    code.unspill(number(reg), 1);
    Spilled::Reg(number(reg))
}

/// Does the instruction access memory at its operand's address (which `lea` and `nop` don't)?
pub fn accesses_memory(ins: &Instruction) -> bool {
    ins.mnemonic() != Mnemonic::Lea
        && (0..ins.op_count()).any(|op| ins.op_kind(op) == OpKind::Memory)
}

/// String instructions and `xlat`, whose address comes from a fixed register.
pub fn displaces(ins: &Instruction) -> bool {
    let source = [
        OpKind::MemorySegSI,
        OpKind::MemorySegESI,
        OpKind::MemorySegRSI,
    ];
    ins.mnemonic() == Mnemonic::Xlatb
        || (0..ins.op_count()).any(|op| source.contains(&ins.op_kind(op)))
}

/// A string instruction relative to the guest's gs: its register is displaced meanwhile.
pub fn string_through_guest_gs(code: &mut Emitter, ins: &Instruction) -> Spilled {
    let (displaced, address) = match ins.mnemonic() {
        Mnemonic::Xlatb => (Register::RBX, Displaced::Rbx),
        _ => (Register::RSI, Displaced::Rsi),
    };
    let reg = scratch(ins, &[displaced]);
    let add = |code: &mut Emitter| {
        let sum = MemoryOperand::new(displaced, reg, 1, 0, 0, false, Register::None);
        encode(
            code,
            &Instruction::with2(Code::Lea_r64_m, displaced, sum).expect("lea"),
        );
    };
    code.spill(1, number(reg));
    code.load_gs(number(reg), GS_BASE);
    add(code);
    let mut plain = *ins;
    plain.set_segment_prefix(Register::None);
    encode(code, &plain);
    code.load_gs(number(reg), GS_BASE);
    // Minus the base without touching flags: not reg; lea reg, [reg + 1]
    code.raw(&[0x48 | number(reg) >> 3, 0xf7, 0xd0 | (number(reg) & 7)]);
    let one = MemoryOperand::new(reg, Register::None, 1, 1, 1, false, Register::None);
    encode(
        code,
        &Instruction::with2(Code::Lea_r64_m, reg, one).expect("lea"),
    );
    add(code);
    code.unspill(number(reg), 1);
    Spilled::Displaced(address, number(reg))
}

/// Clamps the component mask in edx:eax to x87, SSE and AVX around the instruction.
pub fn xrstor(code: &mut Emitter, ins: &Instruction) -> Spilled {
    let reg = scratch(ins, &[Register::RAX, Register::RDX]);
    code.spill(1, RAX);
    code.spill(2, RDX);
    code.spill(3, number(reg));
    address_into(code, ins, reg);
    if ins.segment_prefix() == Register::GS {
        code.load_gs(RDX, GS_BASE);
        let sum = MemoryOperand::new(reg, Register::RDX, 1, 0, 0, false, Register::None);
        encode(
            code,
            &Instruction::with2(Code::Lea_r64_m, reg, sum).expect("lea"),
        );
    }
    // The mask without touching flags: edx = 7, eax = pext(eax, edx), edx = 0.
    code.mov_imm(RDX, 7);
    // pext eax, eax, edx
    code.raw(&[0xc4, 0xe2, 0x7a, 0xf5, 0xc2]);
    code.mov_imm(RDX, 0);
    encode_through(code, ins, reg);
    code.unspill(RAX, 1);
    code.unspill(RDX, 2);
    code.unspill(number(reg), 3);
    Spilled::Xsave(number(reg))
}

/// `lea reg, [the operand without its segment]`
fn address_into(code: &mut Emitter, ins: &Instruction, reg: Register) {
    if ins.is_ip_rel_memory_operand() {
        code.mov_imm(number(reg), ins.ip_rel_memory_address());
        return;
    }
    let operand = MemoryOperand::new(
        ins.memory_base(),
        ins.memory_index(),
        ins.memory_index_scale(),
        ins.memory_displacement64() as i64,
        ins.memory_displ_size(),
        false,
        Register::None,
    );
    encode(
        code,
        &Instruction::with2(Code::Lea_r64_m, reg, operand).expect("lea"),
    );
}

/// The instruction with its memory operand replaced by `[reg]`.
fn encode_through(code: &mut Emitter, ins: &Instruction, reg: Register) {
    let mut ins = *ins;
    if ins.segment_prefix() == Register::GS {
        ins.set_segment_prefix(Register::None);
    }
    ins.set_memory_base(reg);
    ins.set_memory_index(Register::None);
    ins.set_memory_index_scale(1);
    ins.set_memory_displacement64(0);
    ins.set_memory_displ_size(0);
    encode(code, &ins);
}

fn encode(code: &mut Emitter, ins: &Instruction) {
    let mut encoder = Encoder::new(64);
    encoder
        .encode(ins, code.here() as u64)
        .unwrap_or_else(|e| panic!("an instruction of the guest can't be encoded: {ins}: {e}"));
    code.raw(&encoder.take_buffer());
}

fn number(reg: Register) -> u8 {
    reg.number() as u8
}

/// A register that the instruction doesn't touch in any way.
fn scratch(ins: &Instruction, taken: &[Register]) -> Register {
    let mut info = iced_x86::InstructionInfoFactory::new();
    let used = info.info(ins).used_registers();
    [
        Register::RSI,
        Register::RDI,
        Register::RBX,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R12,
        Register::R14,
    ]
    .into_iter()
    .find(|reg| !taken.contains(reg) && !used.iter().any(|u| u.register().full_register() == *reg))
    .expect("no instruction uses that many registers")
}
