//! What the checker must know of an instruction that the twin is about to execute.
//!
//! Written from the architecture's manual and the definition of ticks, not from the translator:
//! what one gets wrong the other shall find.

use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic, OpKind,
    RflagsBits,
};

use crate::vdso::{self, VdsoCall};

/// Why the twin doesn't execute an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// `syscall`.
    Syscall,
    /// The engine answers it.
    Engine,
    /// Of an extension that the guest isn't shown: an invalid opcode.
    Hidden,
    /// `int3` and the like: a signal.
    Trap,
    /// Gives a result that depends on more than registers.
    Unrepeatable,
}

/// Where an instruction may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Next,
    /// A direct branch; `call` doesn't tick when it goes back.
    Direct {
        target: u64,
        call: bool,
    },
    /// A return, or a branch through a register or memory.
    Indirect,
}

#[derive(Clone, Copy, Debug)]
pub struct Native {
    pub next: u64,
    pub flow: Flow,
    pub barrier: Option<Barrier>,
    /// Flags it reads, and flags it overwrites, in the hardware's bits.
    pub reads: u32,
    pub writes: u32,
    /// A string instruction with a repeat prefix: single steps would be single rounds.
    pub repeats: bool,
    /// Puts the flags on the stack, the stepper's trap flag among them.
    pub pushes_flags: bool,
}

impl Native {
    /// The instruction in `bytes`, which are at `pc`. None if it isn't one: it will fault.
    pub fn decode(bytes: &[u8], pc: u64) -> Option<Native> {
        let ins = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
        if ins.is_invalid() {
            return None;
        }
        let string = ins.is_string_instruction();
        let repeats = string && (ins.has_rep_prefix() || ins.has_repne_prefix());
        Some(Native {
            next: ins.next_ip(),
            flow: flow(&ins),
            barrier: barrier(&ins),
            reads: hardware(ins.rflags_read()),
            writes: writes(&ins, repeats),
            repeats,
            pushes_flags: matches!(ins.code(), Code::Pushfq | Code::Pushfw),
        })
    }
}

fn flow(ins: &Instruction) -> Flow {
    match ins.flow_control() {
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => Flow::Direct {
            target: ins.near_branch_target(),
            call: false,
        },
        FlowControl::Call if ins.op0_kind() == OpKind::NearBranch64 => Flow::Direct {
            target: ins.near_branch_target(),
            call: true,
        },
        FlowControl::Return | FlowControl::IndirectBranch | FlowControl::IndirectCall => {
            Flow::Indirect
        }
        _ => Flow::Next,
    }
}

fn barrier(ins: &Instruction) -> Option<Barrier> {
    use Mnemonic::*;
    if is_hidden(ins) {
        return Some(Barrier::Hidden);
    }
    match ins.mnemonic() {
        Syscall => Some(syscall(ins.ip())),
        Int3 | Int1 => Some(Barrier::Trap),
        // 32-bit system calls and far transfers; other software interrupts fault.
        Int => match ins.immediate8() {
            0x80 => Some(Barrier::Engine),
            3 | 4 => Some(Barrier::Trap),
            _ => None,
        },
        Cpuid | Xgetbv | Pause | Wrfsbase | Wrgsbase | Rdgsbase | Sysenter | Xtest | Xbegin
        | Xend | Xabort | Iretq | Iretd | Iret | Retf | Lfs | Lgs | Lss => Some(Barrier::Engine),
        Mov | Pop if writes_segment(ins) => Some(Barrier::Engine),
        // Time and chance; counters; which parts of the state the CPU believes to be in use; the
        // address of the last x87 instruction, which is the translation's; the kernel's tables.
        Rdtsc | Rdtscp | Rdrand | Rdseed | Rdpid | Rdpmc | Xsave | Xsave64 | Xsavec | Xsavec64
        | Xsaveopt | Xsaveopt64 | Fxsave | Fxsave64 | Fnsave | Fnstenv | Sgdt | Sidt | Sldt
        | Str | Smsw | Lsl | Lar | Verr | Verw => Some(Barrier::Engine),
        // The stepper's own trap flag.
        Popf | Popfq | Popfd => Some(Barrier::Unrepeatable),
        _ => match ins.flow_control() {
            FlowControl::IndirectBranch | FlowControl::IndirectCall
                if !matches!(ins.code(), Code::Jmp_rm64 | Code::Call_rm64) =>
            {
                Some(Barrier::Engine)
            }
            _ => None,
        },
    }
}

/// AVX-512 and AMX, whose registers aren't kept, and extensions that cpuid hides.
fn is_hidden(ins: &Instruction) -> bool {
    use Mnemonic::*;
    if matches!(
        ins.mnemonic(),
        Rdpkru
            | Wrpkru
            | Umonitor
            | Umwait
            | Tpause
            | Rdpru
            | Senduipi
            | Clui
            | Stui
            | Testui
            | Uiret
            | Enqcmd
            | Enqcmds
            | Enclu
            | Xsusldtrk
            | Xresldtrk
    ) {
        return true;
    }
    let mut registers = (0..ins.op_count())
        .filter(|&op| ins.op_kind(op) == OpKind::Register)
        .map(|op| ins.op_register(op));
    match ins.encoding() {
        EncodingKind::EVEX | EncodingKind::MVEX => true,
        EncodingKind::VEX => registers.any(|r| r.is_k() || r.is_tmm()),
        _ => false,
    }
}

/// The guest's vdso asks for the time without leaving the cache.
fn syscall(pc: u64) -> Barrier {
    match vdso::entry(pc.wrapping_sub(vdso::SYSCALL_OFFSET)) {
        Some(VdsoCall::ClockGettime | VdsoCall::Gettimeofday | VdsoCall::Time) => {
            Barrier::Unrepeatable
        }
        _ => Barrier::Syscall,
    }
}

fn writes_segment(ins: &Instruction) -> bool {
    ins.op0_kind() == OpKind::Register && ins.op0_register().is_segment_register()
}

fn writes(ins: &Instruction, repeats: bool) -> u32 {
    use Mnemonic::*;
    let counted = matches!(
        ins.mnemonic(),
        Shl | Shr | Sar | Sal | Rol | Ror | Rcl | Rcr | Shld | Shrd
    );
    if repeats {
        // With a count of zero nothing is written.
        return 0;
    }
    if counted {
        let last = ins.op_count() - 1;
        let sure = ins.op_kind(last) == OpKind::Immediate8 && ins.immediate8() & 31 != 0;
        if !sure {
            return 0;
        }
    }
    // What it leaves undefined counts too: if the CPU keeps the old value, and somebody reads that,
    // the registers will tell.
    hardware(ins.rflags_modified())
}

/// The decoder has an order of its own.
fn hardware(flags: u32) -> u32 {
    let pairs = [
        (RflagsBits::CF, 0x1),
        (RflagsBits::PF, 0x4),
        (RflagsBits::AF, 0x10),
        (RflagsBits::ZF, 0x40),
        (RflagsBits::SF, 0x80),
        (RflagsBits::OF, 0x800),
    ];
    pairs
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, hardware)| hardware)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Native {
        Native::decode(bytes, 0x1000).unwrap()
    }

    #[test]
    fn branches() {
        // jmp $
        let back = decode(&[0xeb, 0xfe]).flow;
        assert_eq!(
            back,
            Flow::Direct {
                target: 0x1000,
                call: false
            }
        );
        // call $+5
        let call = decode(&[0xe8, 0, 0, 0, 0]).flow;
        assert_eq!(
            call,
            Flow::Direct {
                target: 0x1005,
                call: true
            }
        );
        assert_eq!(decode(&[0xc3]).flow, Flow::Indirect);
        // call [rax]
        assert_eq!(decode(&[0xff, 0x10]).flow, Flow::Indirect);
        assert_eq!(decode(&[0x90]).flow, Flow::Next);
    }

    #[test]
    fn barriers() {
        assert_eq!(decode(&[0x0f, 0x05]).barrier, Some(Barrier::Syscall));
        assert_eq!(decode(&[0x0f, 0xa2]).barrier, Some(Barrier::Engine));
        assert_eq!(decode(&[0xcc]).barrier, Some(Barrier::Trap));
        assert_eq!(decode(&[0x9d]).barrier, Some(Barrier::Unrepeatable));
        assert_eq!(decode(&[0x48, 0x89, 0xd8]).barrier, None);
    }

    #[test]
    fn flags() {
        // add eax, ebx; shl eax, cl; shl eax, 3; adc eax, 0
        assert_ne!(decode(&[0x01, 0xd8]).writes & 1, 0);
        assert_eq!(decode(&[0xd3, 0xe0]).writes, 0);
        assert_ne!(decode(&[0xc1, 0xe0, 3]).writes & 0x40, 0);
        assert_eq!(decode(&[0x83, 0xd0, 0]).reads, 1);
        // rep scasb
        assert!(decode(&[0xf3, 0xae]).repeats);
        // "rep ret"
        assert!(!decode(&[0xf3, 0xc3]).repeats);
    }
}
