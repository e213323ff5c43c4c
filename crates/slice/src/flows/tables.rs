//! Which instructions are of a kind. In: an instruction. Out: whether it is.

use std::sync::LazyLock;

use iced_x86::{CpuidFeature, Instruction, Mnemonic, OpKind, Register};

/// Registers that an instruction uses for nothing but an address.
pub(super) fn addresses_only(ins: &Instruction, register: Register) -> bool {
    let full = register.full_register();
    let addresses = [ins.memory_base(), ins.memory_index()];
    let in_address = addresses
        .into_iter()
        .any(|used| used != Register::None && used.full_register() == full);
    let named = (0..ins.op_count())
        .any(|n| ins.op_kind(n) == OpKind::Register && ins.op_register(n).full_register() == full);
    // What `lea` computes is the address.
    if ins.mnemonic() == Mnemonic::Lea {
        return false;
    }
    let string = ins.is_string_instruction() && matches!(full, Register::RSI | Register::RDI);
    in_address && !named || string
}

pub(super) fn moves_strings(ins: &Instruction) -> bool {
    ins.is_string_instruction()
        && matches!(
            ins.mnemonic(),
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq
        )
}

/// Whether the result is the same whatever the operands are.
pub(super) fn is_constant(ins: &Instruction) -> bool {
    let same = |a: u32, b: u32| {
        ins.op_kind(a) == OpKind::Register
            && ins.op_kind(b) == OpKind::Register
            && ins.op_register(a) == ins.op_register(b)
    };
    match ins.mnemonic() {
        Mnemonic::Xor
        | Mnemonic::Sub
        | Mnemonic::Sbb
        | Mnemonic::Pxor
        | Mnemonic::Xorps
        | Mnemonic::Xorpd
        | Mnemonic::Psubb
        | Mnemonic::Psubw
        | Mnemonic::Psubd
        | Mnemonic::Psubq
        | Mnemonic::Pcmpeqb
        | Mnemonic::Pcmpeqw
        | Mnemonic::Pcmpeqd
        | Mnemonic::Pcmpeqq
        | Mnemonic::Pcmpgtb
        | Mnemonic::Pcmpgtw
        | Mnemonic::Pcmpgtd => ins.op_count() == 2 && same(0, 1),
        Mnemonic::Vpxor
        | Mnemonic::Vxorps
        | Mnemonic::Vxorpd
        | Mnemonic::Vpsubb
        | Mnemonic::Vpsubw
        | Mnemonic::Vpsubd
        | Mnemonic::Vpsubq
        | Mnemonic::Vpcmpeqb
        | Mnemonic::Vpcmpeqw
        | Mnemonic::Vpcmpeqd
        | Mnemonic::Vpcmpeqq => ins.op_count() == 3 && same(1, 2),
        _ => false,
    }
}

/// Shifts by a register leave flags alone if it is zero, and so do repeated instructions.
pub(super) fn keeps_flags(ins: &Instruction) -> bool {
    (0..ins.op_count())
        .any(|n| ins.op_kind(n) == OpKind::Register && ins.op_register(n) == Register::CL)
        || repeats(ins)
}

/// As often as a register says, which may be never.
pub(super) fn repeats(ins: &Instruction) -> bool {
    ins.is_string_instruction() && (ins.has_rep_prefix() || ins.has_repne_prefix())
}

/// Writes those parts of memory that a mask says.
pub(super) fn masks_stores(ins: &Instruction) -> bool {
    matches!(
        ins.mnemonic(),
        Mnemonic::Maskmovdqu
            | Mnemonic::Vmaskmovdqu
            | Mnemonic::Maskmovq
            | Mnemonic::Vmaskmovps
            | Mnemonic::Vmaskmovpd
            | Mnemonic::Vpmaskmovd
            | Mnemonic::Vpmaskmovq
    ) || repeats(ins)
}

/// The x87's own instructions, and MMX's, each of which also says that all registers are in use.
pub(super) fn uses_x87(ins: &Instruction) -> bool {
    const FEATURES: [CpuidFeature; 4] = [
        CpuidFeature::FPU,
        CpuidFeature::FPU287,
        CpuidFeature::FPU387,
        CpuidFeature::MMX,
    ];
    let operand = |n| ins.op_kind(n) == OpKind::Register && ins.op_register(n).is_mm();
    let named = matches!(
        ins.mnemonic(),
        Mnemonic::Emms
            | Mnemonic::Fldenv
            | Mnemonic::Fnstenv
            | Mnemonic::Fstenv
            | Mnemonic::Fnsave
            | Mnemonic::Fsave
            | Mnemonic::Frstor
            | Mnemonic::Cvtpi2pd
            | Mnemonic::Cvtpi2ps
            | Mnemonic::Maskmovq
    );
    let features = ins.cpuid_features();
    named
        || (0..ins.op_count()).any(operand)
        || features.iter().any(|feature| FEATURES.contains(feature))
}

/// Arithmetic that follows SSE's rounding mode and notes exceptions.
pub(super) fn rounds(ins: &Instruction) -> bool {
    static ROUNDS: LazyLock<Vec<bool>> = LazyLock::new(|| {
        const NAMES: [&str; 18] = [
            "Add", "Addsub", "Sub", "Mul", "Div", "Sqrt", "Min", "Max", "Cmp", "Comi", "Ucomi",
            "Cvt", "Round", "Dp", "Hadd", "Hsub", "Fm", "Fnm",
        ];
        let all = Mnemonic::values().map(|mnemonic| {
            let name = format!("{mnemonic:?}");
            let rest = name.strip_prefix('V').map(|rest| {
                let mut letters = rest.chars();
                let first = letters.next().map(|first| first.to_ascii_uppercase());
                first.into_iter().chain(letters).collect::<String>()
            });
            let plain = rest.as_deref().unwrap_or(&name);
            let kind = ["ps", "pd", "ss", "sd"]
                .iter()
                .any(|kind| plain.ends_with(kind));
            NAMES.iter().any(|known| plain.starts_with(known)) && (kind || plain.starts_with("Cvt"))
        });
        all.collect()
    });
    // `cmpsd` is a string instruction as well.
    !ins.is_string_instruction() && ROUNDS[ins.mnemonic() as usize]
}
